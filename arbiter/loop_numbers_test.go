package arbiter

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// gapless checks that each number of the epoch is told or skipped, so that a
// reader can tell a skip from a loss.
func gapless(t *testing.T, events []store.Event) (skips int) {
	t.Helper()
	next := events[0].Position.Seq
	if events[0].Type == store.SequenceSkipped {
		next = events[0].From
	}
	for _, ev := range events {
		if ev.Type == store.SequenceSkipped {
			skips++
			if ev.From != next || ev.To+1 != ev.Position.Seq {
				t.Fatalf("skip %d to %d under number %d, where %d was due", ev.From, ev.To, ev.Position.Seq, next)
			}
		} else if ev.Position.Seq != next {
			t.Fatalf("number %d follows %d without a skip", ev.Position.Seq, next-1)
		}
		next = ev.Position.Seq + 1
	}
	return skips
}

// TestLoopNumbersComeFromDurableBlocks: no commit uses a number that an
// earlier, successful one had not reserved (D2, F13), the next block is
// reserved along with events, and only the first costs a sync of its own.
func TestLoopNumbersComeFromDurableBlocks(t *testing.T) {
	s := storetest.NewFaulty(memory())
	durable, alone := uint64(0), 0
	s.Hook(func(b *store.Batch) error {
		for _, ev := range b.Events {
			if ev.Position.Seq > durable {
				t.Errorf("number %d is used, durable are those up to %d", ev.Position.Seq, durable)
			}
		}
		if b.Meta.Reserved < durable && b.Meta.Next == 0 {
			t.Errorf("reservation falls from %d to %d", durable, b.Meta.Reserved)
		}
		if changesNothing(b) && b.Meta.Next == 0 {
			alone++
		}
		durable = b.Meta.Reserved
		return nil
	})
	d := drive(t, s)
	d.sync()
	ids := names("s", 5*timestamps.Block/4)
	for i := 0; i < len(ids); i += 700 {
		d.tell(ids[i:min(i+700, len(ids))]...)
		d.sync(items(ids[:min(i+700, len(ids))])...)
	}
	d.stop()
	if d.Position().Seq != uint64(2*len(ids)) {
		t.Errorf("last number %d, want %d", d.Position().Seq, 2*len(ids))
	}
	if alone > 1 {
		t.Errorf("%d commits only reserved numbers", alone)
	}
}

// TestLoopCleanStopGivesNumbersBack: after a clean stop the numbers go on
// without a gap, however often, and under the same epoch.
func TestLoopCleanStopGivesNumbersBack(t *testing.T) {
	eachPlace(t, store.Retention{}, func(t *testing.T, p place) {
		var ids []string
		var epoch timestamps.Epoch
		for run := range 4 {
			d := drive(t, p.open(t))
			d.sync(items(ids)...)
			if run != 2 { // one that has nothing to tell
				ids = append(ids, fmt.Sprint("s", run))
				d.tell(ids[len(ids)-1])
			}
			d.sync(items(ids)...)
			if run == 0 {
				epoch = d.Position().Epoch
			}
			d.stop()
			if at := d.Position(); at != (timestamps.Position{Epoch: epoch, Seq: uint64(2 * len(ids))}) {
				t.Fatalf("run %d ends at %v, want %v/%d", run, at, epoch, 2*len(ids))
			}
		}
	})
}

// TestLoopCrashSkipsTheRestOfTheBlock: after anything but a clean stop the
// rest of the block is skipped with an entry that says so, and its own number
// is the first after the block (D2).
func TestLoopCrashSkipsTheRestOfTheBlock(t *testing.T) {
	eachPlace(t, store.Retention{}, func(t *testing.T, p place) {
		d := drive(t, p.open(t))
		d.sync()
		d.tell("s1")
		d.sync(ready("s1"))
		first := d.after(d.beginning())
		d.crash()

		// Crash after crash, some right after the first reservation, before the
		// skip itself is written.
		for range 3 {
			s := storetest.NewFaulty(p.open(t))
			written := false
			s.Hook(func(b *store.Batch) error {
				if written {
					return errCrash
				}
				written = true
				return nil
			})
			d = drive(t, s)
			d.Submit(&Requested{At: d.moment(), PodKey: "x"})
			d.cancel()
			if err := d.end(); !errors.Is(err, errCrash) {
				t.Fatalf("stop: %v", err)
			}
		}

		d = drive(t, p.open(t))
		d.sync(ready("s1"))
		d.tell("s2")
		d.sync(ready("s1"), ready("s2"))
		all := d.after(d.beginning())
		if gapless(t, all) != 1 {
			t.Errorf("journal %+v, want one skip", all)
		}
		if diff := cmp.Diff(first, all[:len(first)]); diff != "" {
			t.Errorf("journal before the crash (-before +after):\n%s", diff)
		}
		skip := all[len(first)]
		if skip.Type != store.SequenceSkipped || skip.From != 3 || skip.To != 4*timestamps.Block {
			t.Errorf("skip %+v, want 3 to the end of the fourth block", skip)
		}
		// A reader that stood at the last entry reads on across the skip.
		if rest := d.after(first[len(first)-1].Position); len(rest) != 3 || rest[0].Type != store.SequenceSkipped {
			t.Errorf("after %v comes %+v", first[len(first)-1].Position, rest)
		}
		d.stop()
	})
}

// TestLoopNumbersSurviveAnEmptiedJournal: what retention dropped is not
// numbered again, not even after a crash.
func TestLoopNumbersSurviveAnEmptiedJournal(t *testing.T) {
	keep := store.Retention{Entries: 1}
	eachPlace(t, keep, func(t *testing.T, p place) {
		d := drive(t, p.open(t))
		d.sync()
		ids := names("s", 200)
		for i, id := range ids {
			d.tell(id)
			if i%20 == 19 {
				d.sync(items(ids[:i+1])...)
			}
		}
		d.sync(items(ids)...)
		at := d.Position()
		d.crash()
		d = drive(t, p.open(t))
		d.sync(items(ids)...)
		if d.Position().Seq != timestamps.Block+1 || d.Position().Epoch != at.Epoch {
			t.Errorf("after the crash the position is %v, want that of the skip after %v", d.Position(), at)
		}
		// The reader that stood at the end can still read on: the skip joins it.
		rest := d.after(at)
		if len(rest) != 1 || rest[0].From != at.Seq+1 {
			t.Errorf("after %v comes %+v", at, rest)
		}
		// One that was behind is told.
		var expired *ExpiredError
		_, err := d.Subscribe(&timestamps.Position{Epoch: at.Epoch, Seq: 5})
		if !errors.As(err, &expired) || expired.Oldest != d.Oldest() {
			t.Errorf("a reader far behind gets %v", err)
		}
		d.stop()
	})
}

// TestLoopRunningTimeGoesOn: the time that retention and tombstones count is the agent's own running time,
// over all its runs and without the time between them; and each event says in which boot it was seen (T4).
func TestLoopRunningTimeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory()
		d := drive(t, m)
		d.sync()
		time.Sleep(time.Hour)
		d.tell("s1")
		d.sync(ready("s1"))
		d.stop()
		time.Sleep(24 * time.Hour) // it doesn't run
		d = drive(t, m.Reopen(), func(c *Config) { c.BootID = "another" })
		d.sync(ready("s1"))
		time.Sleep(time.Minute)
		d.tell("s2")
		d.sync(ready("s1"), ready("s2"))
		all := d.after(d.beginning())
		if len(all) != 4 || all[0].BootID != "boot" || all[3].BootID != "another" {
			t.Fatalf("told %+v", all)
		}
		between := time.Duration(all[3].Running - all[0].Running)
		if between < time.Minute || between > time.Minute+time.Second {
			t.Errorf("between the events the agent ran for %v, want a minute", between)
		}
		d.stop()
	})
}
