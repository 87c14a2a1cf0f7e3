package arbiter

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// TestLoopEndsWhenTryingAgainIsUseless: what a store says of damage, and of a
// batch that it will never take, ends the run with that error. Nothing of that
// batch is shown, and its numbers are not given back.
func TestLoopEndsWhenTryingAgainIsUseless(t *testing.T) {
	for _, why := range []error{store.ErrDamaged, store.ErrBatch, store.ErrConflict, store.ErrClosed} {
		t.Run(why.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := memory()
				d := drive(t, m)
				d.tell("s1")
				d.sync(ready("s1"))
				at := d.Position()
				sub, err := d.Subscribe(nil)
				if err != nil {
					t.Fatal(err)
				}
				d.faulty.FailBefore(-1, fmt.Errorf("state file x: %w", why))
				d.tell("s2")
				if err := d.end(); !errors.Is(err, why) {
					t.Errorf("run: %v", err)
				}
				if _, err := sub.Next(t.Context()); !errors.Is(err, ErrStopped) {
					t.Errorf("a reader gets %v", err)
				}
				if pods, pos := d.Pods(); len(pods) != 1 || pos != at {
					t.Errorf("%d pods at %v are shown, want what was committed", len(pods), pos)
				}
				if h := d.Health(); h.StoreError == "" {
					t.Errorf("health %+v says nothing of it", h)
				}
				snap, err := m.Load()
				if err != nil || snap.Meta.Next != 0 {
					t.Errorf("numbers from %d on were given back, %v", snap.Meta.Next, err)
				}
			})
		})
	}
}

// TestLoopEndsWhenTryingAgainBecomesUseless: a disk that fails first and then
// turns out to have damaged the file ends the run too, also while it stops.
func TestLoopEndsWhenTryingAgainBecomesUseless(t *testing.T) {
	for _, stopping := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := drive(t, memory())
			d.sync()
			d.faulty.FailBefore(-1, store.ErrIO)
			d.tell("s1")
			time.Sleep(time.Minute)
			d.faulty.FailBefore(-1, store.ErrDamaged)
			if stopping {
				d.cancel()
			}
			if err := d.end(); !errors.Is(err, store.ErrDamaged) {
				t.Errorf("run: %v", err)
			}
		})
	}
}

// TestLoopDatesWhatCanBeRead: while the store fails, lists go on being applied,
// but what is read gets older all the same, and health says so.
func TestLoopDatesWhatCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync(ready("s1"))
		time.Sleep(time.Second)
		d.faulty.FailBefore(-1, store.ErrFull)
		d.tell("s2")
		for range 100 {
			time.Sleep(time.Minute)
			d.list(ready("s1"), ready("s2"))
		}
		synctest.Wait()
		const since = 100*time.Minute + time.Second
		if h := d.Health(); !h.Relisted || h.RelistAge != since || h.StoreFails != since-time.Second || h.ListError != "" {
			t.Errorf("%+v, want an age of %v", h, since)
		}
		d.faulty.FailBefore(0, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if h := d.Health(); h.RelistAge != time.Minute || h.StoreFails != 0 {
			t.Errorf("%+v when what was held is written", h)
		}
		d.stop()
	})
}

// TestLoopBoundsWhatHasNoEvents: while the store fails, questions and records
// without events are held within the same bound.
func TestLoopBoundsWhatHasNoEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queue, unwritten = 100, 1000
		d := drive(t, memory(), func(c *Config) { c.Queue, c.unwritten = queue, unwritten })
		d.sync()
		d.faulty.FailBefore(-1, store.ErrFull)
		told := 0
		for _, id := range names("c", 10*unwritten) {
			// Of an old event of an unknown id nothing is told before a call
			// has found it (O5): a question and perhaps a record.
			if !d.SubmitEvent(&EventSeen{At: d.moment(), Type: EventStopped, ID: id, CreatedAt: 1}) {
				break
			}
			if told++; told%queue == 0 {
				synctest.Wait()
			}
		}
		if told > unwritten+2*queue || told < unwritten/3 {
			t.Errorf("%d events were taken, want about %d at most", told, unwritten)
		}
		if n := d.core; len(n.asks) > unwritten+queue {
			t.Errorf("%d questions are held", len(n.asks))
		}
		d.faulty.FailBefore(0, nil)
		time.Sleep(time.Minute)
		d.sync()
		d.stop()
	})
}

// TestLoopGoesOnRightAfterItWasFull: what came while it could take nothing is
// taken as soon as there is room, not at the next heartbeat.
func TestLoopGoesOnRightAfterItWasFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory(), func(c *Config) { c.unwritten = 2 })
		d.sync()
		d.faulty.FailBefore(3, store.ErrFull)
		d.tell("s1") // two entries: full
		synctest.Wait()
		d.tell("s2")
		synctest.Wait() // the note that it came is used up
		for range 100 {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			if d.Health().StoreError == "" {
				break
			}
		}
		if pods, _ := d.Pods(); len(pods) != 2 || d.Health().StoreError != "" {
			t.Errorf("%d pods right after the store worked again, health %+v", len(pods), d.Health())
		}
		d.stop()
	})
}

// TestLoopReadAheadIsTheReadersOwn: a reader that stops in the middle keeps no
// more alive than what it has read ahead.
func TestLoopReadAheadIsTheReadersOwn(t *testing.T) {
	f := newFeed(memory(), newEpoch(), 0)
	events := make([]store.Event, 2*readAtOnce)
	for i := range events {
		events[i] = storetest.Event(uint64(i)+1, 1)
	}
	f.append(events)
	s := &Subscription{feed: f}
	for i := range 2 * readAtOnce {
		ev, err := s.Next(t.Context())
		if err != nil || ev.Position.Seq != uint64(i)+1 {
			t.Fatalf("event %d: %v, %v", i+1, ev, err)
		}
		if ev == &f.tail[i] {
			t.Fatal("the event is in the tail's own array")
		}
		if len(s.buf) == 0 && s.buf != nil {
			t.Fatal("an empty buffer holds what was read")
		}
		if len(s.buf) > readAtOnce {
			t.Fatalf("%d events read ahead", len(s.buf))
		}
	}
}
