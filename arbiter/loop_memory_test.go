package arbiter

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// volatile returns how many of the events were told from memory.
func volatile(events []store.Event) (n int) {
	for _, ev := range events {
		if ev.Volatile {
			n++
		}
	}
	return n
}

// held returns how many events a loop holds to write them later.
func held(d *driven) int {
	n, _ := d.feed.held()
	return n
}

// TestD2FullDiskTellsFromMemory: while the disk is full, events come on time
// and in order, after those that are committed (F14), marked volatile; the
// pods are as new as they. When there is room all is written under the same
// numbers, without any new change, and is not volatile any more.
func TestD2FullDiskTellsFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory()
		d := drive(t, m)
		d.tell("s1")
		d.sync(ready("s1"))
		d.faulty.FailBefore(-1, store.ErrFull)
		for _, id := range []string{"s2", "s3"} {
			time.Sleep(time.Second)
			d.tell(id)
			synctest.Wait()
			if pod, err := d.Pod("uid-" + id); err != nil || pod.Position != d.Position() {
				t.Fatalf("pod %+v, %v", pod, err)
			}
		}
		told := d.after(d.beginning())
		if len(told) != 6 || gapless(t, told) != 0 || volatile(told[:2]) != 0 || volatile(told[2:]) != 4 {
			t.Fatalf("told %+v", told)
		}
		d.sync(ready("s1"), ready("s2"), ready("s3"))
		if h := d.Health(); h.StoreError == "" || !h.Relisted || h.RelistAge != 0 {
			t.Errorf("health %+v", h)
		}
		if j := m.Journal(); j.Last != 2 {
			t.Fatalf("journal %+v, want nothing new", j)
		}
		d.faulty.FailBefore(0, nil)
		time.Sleep(2 * retryMost)
		synctest.Wait()
		if h := d.Health(); h.StoreError != "" {
			t.Errorf("health %+v", h)
		}
		for i := range told {
			told[i].Volatile = false
		}
		for range 2 { // from memory, and from the store
			if diff := cmp.Diff(told, d.after(d.beginning())); diff != "" {
				t.Errorf("when it is written (-told +written):\n%s", diff)
			}
			d.forgetTail()
		}
		d.crash()

		// Nothing of it is told again (C54).
		d = drive(t, m.Reopen())
		d.sync(ready("s1"), ready("s2"), ready("s3"))
		if again := d.after(told[5].Position); len(again) != 1 || again[0].Type != store.SequenceSkipped {
			t.Errorf("after a restart comes %+v", again)
		}
		d.stop()
	})
}

// TestD2KilledTwiceOnAFullDisk: what was told from memory and not written is
// found out again, under other numbers, in whichever order kills and full disks
// come (F12, F13). Who stood there is told that it is gone.
func TestD2KilledTwiceOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory()
		var h history
		life := func(full bool, ids ...string) *driven {
			m = m.Reopen()
			d := drive(t, m)
			d.sync()
			if full {
				d.faulty.FailBefore(-1, store.ErrFull)
			}
			d.tell(ids...)
			d.sync(items(ids)...)
			sub := &Subscription{feed: d.feed, after: d.feed.prev}
			h.add(t, d.rest(sub))
			return d
		}
		d := life(true, "s1")
		first := d.Position()
		d.crash()
		for _, id := range []string{"s2", "s3"} { // full already when they begin
			s := storetest.NewFaulty(m.Reopen())
			s.FailBefore(-1, store.ErrFull)
			d = drive(t, s)
			d.tell(id)
			d.sync(ready(id))
			if d.Position().Epoch == first.Epoch || d.Position().Seq != 2 {
				t.Errorf("%s was told as %v, want a new epoch after that of %v", id, d.Position(), first)
			}
			h.add(t, d.after(d.beginning()))
			d.crash()
		}
		d = life(false, "s4")
		if all := d.after(d.beginning()); gapless(t, all) != 1 || all[0].From != 1 || len(all) != 3 {
			t.Errorf("journal %+v", all)
		}
		for ; first.Seq > 0; first.Seq-- { // down to the first number that was told and is skipped
			var expired *ExpiredError
			if _, err := d.Subscribe(&first); !errors.As(err, &expired) || expired.Oldest != d.beginning() {
				t.Errorf("who stands at %v gets %v", first, err)
			}
		}
		d.stop()
	})
}

// TestD2FullAtTheStart: a run that can't reserve a number begins all the same.
// As long as there is nothing to tell, the epoch stays.
func TestD2FullAtTheStart(t *testing.T) {
	for name, fail := range map[string]func(*storetest.Faulty){
		"before": func(f *storetest.Faulty) { f.FailBefore(-1, store.ErrFull) },
		"after":  func(f *storetest.Faulty) { f.FailAfter(-1, store.ErrFull) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := memory()
				d := drive(t, m)
				d.tell("s1")
				d.sync(ready("s1"))
				at := d.Position()
				d.crash()
				m = m.Reopen()
				d = drive(t, m, func(c *Config) { fail(c.Store.(*storetest.Faulty)) })
				d.sync(ready("s1"))
				time.Sleep(time.Minute)
				if d.Position() != at || d.Health().StoreError == "" && d.numbers.skipTo != 0 {
					t.Fatalf("at %v, want %v; health %+v", d.Position(), at, d.Health())
				}
				d.faulty.FailBefore(0, nil)
				d.faulty.FailAfter(0, nil)
				time.Sleep(2 * retryMost)
				d.tell("s2")
				d.sync(ready("s1"), ready("s2"))
				if all := d.after(at); len(all) != 3 || gapless(t, all) != 1 || volatile(all) != 0 {
					t.Errorf("after %v comes %+v", at, all)
				}
				d.stop()
			})
		})
	}
}

// TestD2BlockUsedUpOnAFullDisk: numbers are told from memory as long as the
// durable block lasts; then a new epoch begins, and each reader goes on from
// one to the other. When there is room the new epoch is written, and the old
// one's positions are only in memory.
func TestD2BlockUsedUpOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory()
		d := drive(t, m)
		d.sync()
		sub, err := d.Subscribe(nil)
		if err != nil {
			t.Fatal(err)
		}
		first := d.Position()
		d.faulty.FailBefore(-1, store.ErrFull)
		ids := names("s", timestamps.Block/2+100)
		for _, id := range ids {
			d.tell(id)
			synctest.Wait()
		}
		d.sync(items(ids)...)
		now := d.Position()
		if now.Epoch == first.Epoch || now.Seq != 200 {
			t.Fatalf("at %v, want number 200 of an epoch after %v", now, first.Epoch)
		}
		all := d.readTo(sub, now)
		if len(all) != 2*len(ids) || all[timestamps.Block-1].Position != (timestamps.Position{Epoch: first.Epoch, Seq: timestamps.Block}) {
			t.Errorf("%d entries were told, want %d, the first %d in the old epoch", len(all), 2*len(ids), timestamps.Block)
		}
		// From any position that was told reading goes on.
		resume := func() {
			for _, i := range []int{0, 1, timestamps.Block - 1, timestamps.Block, len(all) - 1} {
				at := all[i].Position
				s, err := d.Subscribe(&at)
				if err != nil {
					t.Fatalf("from %v: %v", at, err)
				}
				if rest := d.readTo(s, now); len(rest) != len(all)-1-i {
					t.Errorf("after %v come %d entries, want %d", at, len(rest), len(all)-1-i)
				}
			}
		}
		resume()
		d.faulty.FailBefore(0, nil)
		time.Sleep(2 * retryMost)
		d.works()
		resume()
		if j := m.Journal(); j.Epoch != now.Epoch || j.First != 1 || j.Last != 200 {
			t.Errorf("journal %+v", j)
		}
		d.forgetTail()
		if oldest := d.Oldest(); oldest != (timestamps.Position{Epoch: now.Epoch}) {
			t.Errorf("oldest %v", oldest)
		}
		d.stop()
		d = drive(t, m.Reopen())
		d.sync(items(ids)...)
		if d.Position() != now {
			t.Errorf("after a restart the position is %v, want %v", d.Position(), now)
		}
		d.stop()
	})
}

// TestD2NumbersThatAFailedCommitNamed: once a commit has named an epoch, its
// reservation bounds what is told, since it may have been written.
func TestD2NumbersThatAFailedCommitNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory()
		f := storetest.NewFaulty(m)
		f.FailAfter(-1, store.ErrFull)
		d := drive(t, f, func(c *Config) { c.Unwritten = 10 * timestamps.Block })
		d.sync()
		d.tell("s0")
		synctest.Wait()
		named := d.Position().Epoch
		time.Sleep(2 * retryMost) // a try names the epoch
		ids := append([]string{"s0"}, names("s", timestamps.Block)...)
		sub := &Subscription{feed: d.feed, after: timestamps.Position{Epoch: named}}
		var all []store.Event
		for _, id := range ids[1:] {
			d.tell(id)
			synctest.Wait()
			all = append(all, d.readTo(sub, d.Position())...)
		}
		snap, err := m.Load()
		if err != nil || snap.Meta.Epoch != named {
			t.Fatalf("stored is %+v, %v", snap.Meta, err)
		}
		for _, ev := range all {
			if ev.Position.Epoch == named && ev.Position.Seq > snap.Meta.Reserved {
				t.Fatalf("%v was told, reserved is %d", ev.Position, snap.Meta.Reserved)
			}
		}
		if all[len(all)-1].Position.Epoch == named {
			t.Error("the epoch stayed")
		}
		d.crash()
	})
}

// TestD2HoldsABoundedNumber: while the disk is full everything is taken, and
// what is held for it stays bounded: events by number, all else by the state.
// A reader that is further behind than memory goes is told so, and what there
// is in the end is written.
func TestD2HoldsABoundedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queue, unwritten = 100, 2000
		m := memory()
		d := drive(t, m, func(c *Config) {
			c.Queue, c.Unwritten, c.Limits.TombstoneAge = queue, unwritten, int64(10*time.Second)
		})
		d.sync()
		slow, err := d.Subscribe(nil)
		if err != nil {
			t.Fatal(err)
		}
		d.faulty.FailBefore(-1, store.ErrFull)
		most := 0
		for round := range 100 { // 200 sandboxes come and go each time, and an old event names one that never was
			ids := names(string(rune('a'+round%26))+string(rune('a'+round/26)), queue)
			d.tell(ids...)
			d.sync(items(ids)...)
			d.SubmitEvent(&EventSeen{At: d.moment(), Type: EventStopped, ID: "x" + ids[0], CreatedAt: 1})
			for range 2 {
				time.Sleep(2 * time.Second)
				d.sync()
			}
			most = max(most, held(d))
			time.Sleep(2 * time.Minute) // the tombstones go
		}
		d.sync()
		if most > unwritten || most < unwritten/2 {
			t.Errorf("up to %d events were held", most)
		}
		if n := d.log.Count("under a new epoch"); n != 1 {
			t.Errorf("%d new epochs of one trouble are in the log", n)
		}
		if n := len(d.feed.tail); n > 2*tailSize+queue {
			t.Errorf("%d events are in memory", n)
		}
		var expired *ExpiredError
		if _, err := slow.Next(t.Context()); !errors.As(err, &expired) {
			t.Errorf("who has read nothing gets %v", err)
		}
		if _, err := d.Subscribe(&expired.Oldest); err != nil {
			t.Errorf("the oldest position: %v", err)
		}
		d.faulty.FailBefore(0, nil)
		time.Sleep(2 * retryMost)
		d.works()
		told := d.readTo(&Subscription{feed: d.feed, after: expired.Oldest}, d.Position())
		j := m.Journal()
		if j.Epoch != d.Position().Epoch || j.First != 1 || j.Last != d.Position().Seq || len(told) < int(j.Last) {
			t.Errorf("journal %+v, told are %d up to %v", j, len(told), d.Position())
		}
		d.stop()
		d.equalsStore(m)
	})
}

// TestD2HoldsBoundedBytes: events of pods with large labels are held up to a
// size, and what is written gives back what it took.
func TestD2HoldsBoundedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, label = 1 << 20, 10_000
		m := memory()
		d := drive(t, m, func(c *Config) { c.UnwrittenBytes = most })
		d.sync()
		d.faulty.FailBefore(-1, store.ErrFull)
		first, reached := d.Position().Epoch, int64(0)
		for _, id := range names("s", 2*most/(2*label)) { // of each two events
			ev := d.up(id)
			ev.Sandbox.Identity.Labels = map[string]string{"l": strings.Repeat("x", label)}
			d.SubmitEvent(ev)
			synctest.Wait()
			_, bytes := d.feed.held()
			reached = max(reached, bytes)
		}
		if reached > most || reached < most-3*label || d.Position().Epoch == first {
			t.Errorf("up to %d bytes were held, at %v of an epoch after %v", reached, d.Position(), first)
		}
		d.faulty.FailBefore(0, nil)
		time.Sleep(2 * retryMost)
		d.works()
		if n, bytes := d.feed.held(); n != 0 || bytes != 0 {
			t.Errorf("%d events of %d bytes are held when all is written", n, bytes)
		}
		if all := d.after(d.beginning()); len(all) == 0 || gapless(t, all) != 0 || volatile(all) != 0 {
			t.Errorf("journal of %d entries, %d volatile", len(all), volatile(all))
		}
		d.stop()
		d.equalsStore(m)
	})
}

// TestD2BurstOnAFullDisk: more events than memory keeps for readers are all kept
// for the store, if they fit into what may be held.
func TestD2BurstOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory()
		f := storetest.NewFaulty(m)
		f.FailBefore(-1, store.ErrFull)
		d := drive(t, f)
		ids := names("s", tailSize+100)
		d.sync(items(ids)...)
		f.FailBefore(0, nil)
		time.Sleep(2 * retryMost)
		d.works()
		if j := m.Journal(); j.Last != uint64(2*len(ids)) || j.Entries != 2*len(ids) || held(d) != 0 {
			t.Errorf("journal %+v, want %d entries", j, 2*len(ids))
		}
		d.stop()
		d.equalsStore(m)
	})
}
