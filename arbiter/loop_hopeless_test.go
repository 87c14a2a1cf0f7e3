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

// unmendable hides that a store can be rescued.
type unmendable struct{ store.Store }

// TestLoopEndsWhenTryingAgainIsUseless: what a store says of a batch that it
// will never take, and of damage if it can't begin anew, ends the run with that
// error. Nothing of that batch is shown, and its numbers are not given back,
// though the store would take that.
func TestLoopEndsWhenTryingAgainIsUseless(t *testing.T) {
	for _, why := range []error{store.ErrDamaged, store.ErrBatch, store.ErrConflict, store.ErrClosed, store.ErrLocked} {
		t.Run(why.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := memory()
				d := drive(t, m, func(c *Config) { c.Store = unmendable{c.Store} })
				d.tell("s1")
				d.sync(ready("s1"))
				at := d.Position()
				sub, err := d.Subscribe(nil)
				if err != nil {
					t.Fatal(err)
				}
				d.faulty.FailBefore(1, fmt.Errorf("state file x: %w", why))
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
				if err != nil || snap.Meta.Next != 0 || snap.Meta.Last != at.Seq {
					t.Errorf("numbers from %d on were given back, the last is %d, %v", snap.Meta.Next, snap.Meta.Last, err)
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
			d := drive(t, memory(), func(c *Config) { c.Store = unmendable{c.Store} })
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

// TestLoopReadAheadIsTheReadersOwn: a reader that stops in the middle keeps no
// more alive than what it has read ahead.
func TestLoopReadAheadIsTheReadersOwn(t *testing.T) {
	f := newFeed(memory(), storetest.Event(0, 1).Position)
	events := make([]store.Event, 2*readAtOnce)
	for i := range events {
		events[i] = storetest.Event(uint64(i)+1, 1)
	}
	f.append(events, false)
	s := &Subscription{feed: f, after: f.prev}
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
