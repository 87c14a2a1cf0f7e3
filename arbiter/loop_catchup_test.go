package arbiter

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/store"
)

// TestLoopTellsBeforeItCatchesUp: what is decided in the very turn in which the
// store works again is told and written with the rest.
func TestLoopTellsBeforeItCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory()
		d := drive(t, m)
		d.sync()
		d.faulty.FailBefore(-1, store.ErrFull)
		d.tell("s1")
		synctest.Wait()
		d.cancel()
		if err := d.end(); !errors.Is(err, store.ErrFull) {
			t.Fatal(err)
		}
		// One more turn, by hand.
		d.feed.changed = make(chan struct{}) // the end has closed it
		d.faulty.FailBefore(0, nil)
		d.trouble.at = 0
		d.faulty.Hook(func(b *store.Batch) error {
			if len(b.Events) < 2*len(b.Records) {
				t.Errorf("%d records are written with %d events", len(b.Records), len(b.Events))
			}
			return nil
		})
		if err := errors.Join(d.step(d.up("s2")), d.write()); err != nil {
			t.Fatal(err)
		}
		if j := m.Journal(); j.Last != 4 || held(d) != 0 || d.Position().Seq != 4 {
			t.Errorf("journal %+v, %d are held, told up to %v", j, held(d), d.Position())
		}
		d.equalsStore(m)
	})
}

// TestLoopShowsNothingOfTheStoreBeforeItIsTold: a reader of the store gets
// nothing that was committed a moment ago and isn't in the pods yet.
func TestLoopShowsNothingOfTheStoreBeforeItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync()
		d.tell("s1", "s2")
		d.sync(ready("s1"), ready("s2"))
		d.forgetTail()
		from := d.beginning()
		sub, err := d.Subscribe(&from)
		if err != nil {
			t.Fatal(err)
		}
		sub.buf = nil
		checked := make(chan error, 1)
		d.seen.mu.Lock()
		d.seen.written = func() {
			at := d.feed.position()
			err := sub.fill()
			if err == nil && (len(sub.buf) == 0 || sub.buf[len(sub.buf)-1].Position != at) {
				err = errors.New("it reads other than what is told")
			}
			checked <- err
		}
		d.seen.mu.Unlock()
		d.tell("s3")
		if err := <-checked; err != nil {
			t.Errorf("%v: %+v", err, sub.buf)
		}
		d.seen.mu.Lock()
		d.seen.written = nil
		d.seen.mu.Unlock()
		d.stop()
	})
}

// TestLoopWritesInParts: what was told from memory is written in bounded parts,
// and nothing more of it is in doubt than the part that failed.
func TestLoopWritesInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory()
		d := drive(t, m)
		d.sync()
		d.faulty.FailBefore(-1, store.ErrFull)
		ids := names("s", 3*partSize/2)
		d.tell("s")
		synctest.Wait()
		d.tell(ids...)
		d.sync(append(items(ids), ready("s"))...)
		var sizes []int
		d.faulty.Hook(func(b *store.Batch) error {
			sizes = append(sizes, len(b.Events))
			if len(sizes) == 3 {
				return store.ErrFull
			}
			return nil
		})
		d.faulty.FailBefore(0, nil)
		time.Sleep(2 * retryMost)
		d.works()
		if diff := cmp.Diff([]int{2, partSize, partSize, partSize, partSize}, sizes); diff != "" {
			t.Errorf("events of each commit (-want +got):\n%s", diff)
		}
		if all := d.after(d.beginning()); len(all) != 2*len(ids)+2 || gapless(t, all) != 0 || volatile(all) != 0 {
			t.Errorf("%d entries, %d volatile", len(all), volatile(all))
		}
		d.stop()
		d.equalsStore(m)
	})
}

// TestD2LargeRelistMeetsAFullDisk: a relist of several parts finds the disk full. The first part has its
// numbers by then; all are told from memory in the order of their numbers (F14).
func TestD2LargeRelistMeetsAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync()
		d.faulty.FailBefore(-1, store.ErrFull)
		ids := names("s", 2*partSize)
		d.sync(items(ids)...)
		all := d.after(d.beginning())
		if len(all) != 2*len(ids) || gapless(t, all) != 0 || volatile(all) != len(all) {
			t.Errorf("told are %d events, %d of them volatile, want %d", len(all), volatile(all), 2*len(ids))
		}
		d.crash()
	})
}
