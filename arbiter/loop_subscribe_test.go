package arbiter

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// TestLoopSubscribeFromAnywhere: readers that resume at every position there
// is get the same continuation: from memory, from the store, and across the
// skip that a crash left.
func TestLoopSubscribeFromAnywhere(t *testing.T) {
	eachPlace(t, store.Retention{}, func(t *testing.T, p place) {
		d := drive(t, p.open(t))
		d.sync()
		first := names("a", 30)
		d.tell(first...)
		d.sync(items(first)...)
		d.crash()
		d = drive(t, p.open(t)) // what came before is in the store only
		all := append(items(first), items(names("b", 30))...)
		d.sync(all[:30]...)
		d.tell(names("b", 30)...)
		d.sync(all...)

		want := d.after(d.beginning())
		if len(want) != 121 || gapless(t, want) != 1 {
			t.Fatalf("%d entries", len(want))
		}
		positions := []timestamps.Position{d.beginning()}
		for _, ev := range want {
			positions = append(positions, ev.Position)
		}
		for i, from := range positions {
			if got := d.after(from); i < len(want) && !reflect.DeepEqual(want[i:], got) || i == len(want) && got != nil {
				t.Fatalf("after %v (-want +got):\n%s", from, cmp.Diff(want[i:], got))
			}
		}
		d.stop()
	})
}

// TestLoopSubscribeFromNow: without a position a reader gets what comes after.
func TestLoopSubscribeFromNow(t *testing.T) {
	d := drive(t, memory())
	d.sync(ready("old"))
	sub, err := d.Subscribe(nil)
	if err != nil {
		t.Fatal(err)
	}
	if sub.Position() != d.Position() {
		t.Errorf("it stands at %v, want %v", sub.Position(), d.Position())
	}
	d.tell("new")
	d.sync(ready("old"), ready("new"))
	if events := d.rest(sub); len(events) != 2 || events[0].SandboxID != "new" {
		t.Errorf("it got %+v", events)
	}
	d.stop()
}

// TestLoopSubscribeRefuses: what can't be read on from is refused with the
// oldest position that can.
func TestLoopSubscribeRefuses(t *testing.T) {
	d := drive(t, store.NewMemory(store.RuntimeID{}, store.Retention{Entries: 4}), func(c *Config) { c.Runtime = store.RuntimeID{} })
	d.sync()
	for i, id := range names("s", 20) {
		d.tell(id)
		d.sync(items(names("s", i+1))...)
	}
	// As after a restart: nothing is in memory.
	d.forgetTail()
	now := d.Position()
	for name, from := range map[string]timestamps.Position{
		"dropped by the retention": {Epoch: now.Epoch, Seq: 3},
		"before everything":        {Epoch: now.Epoch},
		"never given out":          {Epoch: now.Epoch, Seq: now.Seq + 1},
		"of another epoch":         {Epoch: timestamps.Epoch{1}, Seq: 3},
		"of no epoch":              {Seq: now.Seq},
	} {
		var expired *ExpiredError
		_, err := d.Subscribe(&from)
		if !errors.As(err, &expired) || !errors.Is(err, store.ErrExpired) || expired.Asked != from || expired.Oldest.Seq != now.Seq-4 {
			t.Errorf("%s: %v", name, err)
		}
	}
	oldest := d.Oldest()
	if events := d.after(oldest); len(events) != 4 {
		t.Errorf("after the oldest position %v come %d entries", oldest, len(events))
	}
	d.stop()
}

// beforeEvents has something happen just before events are read, once.
type beforeEvents struct {
	store.Store
	happens func()
}

func (b *beforeEvents) Events(after uint64, n int) ([]store.Event, error) {
	if do := b.happens; do != nil {
		b.happens = nil
		do()
	}
	return b.Store.Events(after, n)
}

// TestLoopOldestWhileTheJournalIsTrimmed: a commit that drops what is the oldest
// entry just now doesn't make the newest ones, which are in memory, the oldest.
func TestLoopOldestWhileTheJournalIsTrimmed(t *testing.T) {
	s := &beforeEvents{Store: store.NewMemory(storetest.Runtime, store.Retention{Entries: 100})}
	d := drive(t, s)
	d.sync()
	told := names("s", 100)
	d.tell(told...)
	d.sync(items(told)...)
	d.forgetTail()
	s.happens = func() {
		told = append(told, "late")
		d.tell("late")
		d.sync(items(told)...)
	}
	oldest := d.Oldest()
	if s.happens != nil {
		t.Fatal("nothing happened meanwhile")
	}
	if n := len(d.after(oldest)); n != 100 {
		t.Errorf("after the oldest position %v come %d entries, want all 100 that are kept", oldest, n)
	}
	d.stop()
}

// An error about a position says which of the three it is, since a reader that
// is ahead has mixed up its positions and lost nothing.
func TestExpiredErrorSaysWhy(t *testing.T) {
	epoch := timestamps.Epoch{0x9f}
	at := func(seq uint64) timestamps.Position { return timestamps.Position{Epoch: epoch, Seq: seq} }
	for want, asked := range map[string]timestamps.Position{
		"position 9f00000000000000/3 expired, oldest is 9f00000000000000/10":                at(3),
		"position 9f00000000000000/21 was not given out yet, newest is 9f00000000000000/20": at(21),
		"position 0100000000000000/12 is of another epoch (the state it belongs to is lost, or another agent's), oldest is 9f00000000000000/10": {
			Epoch: timestamps.Epoch{1}, Seq: 12,
		},
	} {
		err := &ExpiredError{Asked: asked, Oldest: at(10), Newest: at(20)}
		if err.Error() != want || !errors.Is(err, store.ErrExpired) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestLoopSlowReader: a reader that stops reading holds up nobody and costs no
// goroutine; when it reads on, it gets everything from the store, or is told
// that the retention was faster.
func TestLoopSlowReader(t *testing.T) {
	eachPlace(t, store.Retention{Entries: 2 * tailSize}, func(t *testing.T, p place) {
		d := drive(t, p.open(t))
		d.sync()
		goroutines := runtime.NumGoroutine()
		var subs []*Subscription
		for range 100 {
			sub, err := d.Subscribe(nil)
			if err != nil {
				t.Fatal(err)
			}
			subs = append(subs, sub)
		}
		if n := runtime.NumGoroutine() - goroutines; n > 0 {
			t.Errorf("%d goroutines for 100 readers", n)
		}
		ids := names("s", 3*tailSize)
		fast, _ := d.Subscribe(nil)
		feed := func(from, to int) {
			for ; from < to; from += 512 {
				d.tell(ids[from:min(from+512, to)]...)
				for fast.Position().Seq < uint64(2*min(from+512, to)) {
					if _, err := fast.Next(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		feed(0, tailSize/2)
		ev, err := subs[0].Next(t.Context()) // reads one, then stops
		if err != nil || ev.SandboxID != ids[0] {
			t.Fatalf("%+v, %v", ev, err)
		}
		feed(tailSize/2, tailSize)
		// Within the retention: all of it, from the store where it must be.
		if n := len(d.rest(subs[0])); n != 2*tailSize-1 {
			t.Errorf("the slow reader got %d entries, want %d", n, 2*tailSize-1)
		}
		feed(tailSize, len(ids))
		var expired *ExpiredError
		if _, err := subs[1].Next(t.Context()); !errors.As(err, &expired) {
			t.Errorf("a reader slower than the retention gets %v", err)
		}
		d.stop()
	})
}

// TestLoopReaderRacesRetention: a reader of the store while the retention trims
// gets entries without a gap, or is told.
func TestLoopReaderRacesRetention(t *testing.T) {
	eachPlace(t, store.Retention{Entries: 100}, func(t *testing.T, p place) {
		d := drive(t, p.open(t))
		d.sync()
		ended := make(chan struct{})
		ids := names("s", 1500)
		go func() {
			defer close(ended)
			for i, id := range ids {
				if !d.SubmitEvent(d.up(id)) {
					return
				}
				if i%10 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		}()
		read, cut := 0, 0
		for running := true; running; {
			select {
			case <-ended:
				running = false
			default:
			}
			from := d.Oldest()
			events, err := d.faulty.Events(from.Seq, readAtOnce)
			switch {
			case errors.Is(err, store.ErrExpired):
				cut++
			case err != nil:
				t.Fatal(err)
			case len(events) > 0:
				read++
				if gapless(t, events) != 0 || events[0].Position.Seq != from.Seq+1 {
					t.Fatalf("after %v comes %v", from, events[0].Position)
				}
			}
		}
		t.Logf("%d reads, %d cut off", read, cut)
		d.sync(items(ids)...)
		d.stop()
	})
}

// TestLoopStoppedReaders: who waits is woken by the end; ErrStopped comes once
// everything that was published has been delivered, and not before.
func TestLoopStoppedReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory()
		d := drive(t, m)
		d.sync()
		behind, _ := d.Subscribe(nil)
		waiting, _ := d.Subscribe(nil)
		ended := make(chan error, 1)
		go func() {
			for {
				if _, err := waiting.Next(context.Background()); err != nil {
					ended <- err
					return
				}
			}
		}()
		d.tell("s1", "s2")
		d.sync(ready("s1"), ready("s2"))
		d.stop()
		if err := <-ended; !errors.Is(err, ErrStopped) {
			t.Errorf("who waits gets %v", err)
		}
		for range 4 {
			if _, err := behind.Next(t.Context()); err != nil {
				t.Fatalf("what was published is not delivered: %v", err)
			}
		}
		if _, err := behind.Next(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("at the end comes %v", err)
		}
		// Once the store is closed too, what is only there can't be delivered.
		d.forgetTail()
		late, err := d.Subscribe(&timestamps.Position{Epoch: d.Position().Epoch, Seq: 1})
		if err != nil {
			t.Fatal(err)
		}
		late.buf = nil
		_ = m.Close()
		if _, err := late.Next(t.Context()); !errors.Is(err, ErrStopped) || err.Error() == ErrStopped.Error() {
			t.Errorf("a reader of a closed store gets %v", err)
		}
	})
}

// TestLoopCloseEndsReaders: readers of a loop that is never run do not wait
// for ever.
func TestLoopCloseEndsReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.stop()
		l, err := NewLoop(d.cfg)
		if err != nil {
			t.Fatal(err)
		}
		sub, _ := l.Subscribe(nil)
		l.Close()
		l.Close()
		if _, err := sub.Next(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("next: %v", err)
		}
		if _, err := l.PodNewer(t.Context(), "u"); !errors.Is(err, ErrStopped) {
			t.Errorf("pod: %v", err)
		}
	})
}

// TestLoopOldestCanBeReadFrom: while commits fail for the loop and are written all
// the same, they drop what the retention wants dropped. The oldest position is
// then one that memory can go on from, and not what the store last told (D2, D3).
func TestLoopOldestCanBeReadFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := store.NewMemory(storetest.Runtime, store.Retention{Entries: 3})
		d := drive(t, m)
		d.tell("s1", "s2")
		d.sync(ready("s1"), ready("s2"))
		d.stop()
		d = drive(t, m.Reopen())
		d.sync(ready("s1"), ready("s2"))
		d.faulty.FailAfter(-1, store.ErrFull)
		d.tell("s3", "s4")
		d.sync(ready("s1"), ready("s2"), ready("s3"), ready("s4"))
		oldest := d.Oldest()
		sub, err := d.Subscribe(&oldest)
		if err != nil {
			t.Fatalf("from the oldest position: %v", err)
		}
		if told := d.rest(sub); len(told) < 4 || gapless(t, told) != 0 {
			t.Errorf("after %v comes %+v", oldest, told)
		}
		d.crash()
	})
}
