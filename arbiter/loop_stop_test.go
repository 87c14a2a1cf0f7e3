package arbiter

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLoopStopsWithAFailingStore: the stop tries once, says what is lost and
// does not give numbers back whose outcome is unknown.
func TestLoopStopsWithAFailingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory()
		d := drive(t, m)
		d.sync()
		d.faulty.FailAfter(-1, errIO)
		d.tell("s1")
		time.Sleep(time.Second)
		_, before := d.faulty.Commits()
		began := time.Now()
		d.cancel()
		err := d.end()
		if !errors.Is(err, errIO) || !strings.Contains(err.Error(), "could not be written") {
			t.Errorf("stop: %v", err)
		}
		if _, after := d.faulty.Commits(); after != before+1 || time.Since(began) > time.Second {
			t.Errorf("stop made %d tries in %v", after-before, time.Since(began))
		}
		snap, err := m.Load()
		if err != nil || snap.Meta.Next != 0 {
			t.Errorf("numbers from %d on were given back, %v", snap.Meta.Next, err)
		}
	})
}

// TestLoopStopsAfterTheStoreRecovered: what came while a batch was stuck is
// written by the stop too.
func TestLoopStopsAfterTheStoreRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory()
		d := drive(t, m)
		d.sync()
		d.faulty.FailBefore(-1, errIO)
		d.tell("s1")
		synctest.Wait()
		d.tell("s2") // pending behind s1, which is stuck
		synctest.Wait()
		d.faulty.FailBefore(0, nil)
		d.stop()
		snap, err := m.Load()
		if err != nil || len(snap.Records) != 2 || snap.Meta.Next != 5 {
			t.Errorf("%d records, next number %d, %v; want 2 and 5", len(snap.Records), snap.Meta.Next, err)
		}
	})
}

// TestLoopSinkNeverBlocks: while a commit hangs, sources and readers go on;
// what does not fit is refused, and nothing that was taken is lost.
func TestLoopSinkNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory(), func(c *Config) { c.Queue = 10 })
		d.sync(ready("s0"))
		at := d.Position()
		release := d.faulty.Hold()
		d.tell("s1")
		synctest.Wait() // the loop hangs in its commit
		taken := 1
		for _, id := range names("t", 20) {
			if d.SubmitEvent(d.up(id)) {
				taken++
			}
		}
		d.Submit(&StreamOverflow{At: d.moment(), Lost: 10})
		d.list(ready("s0"))
		if taken != 11 || d.Queued() != 10 {
			t.Errorf("%d events taken, %d wait", taken, d.Queued())
		}
		time.Sleep(time.Minute)
		if h := d.Health(); h.Progress < time.Minute {
			t.Errorf("progress %v ago, though the loop hangs", h.Progress)
		}
		if pods, pos := d.Pods(); len(pods) != 1 || pos != at {
			t.Errorf("%d pods at %v", len(pods), pos)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.PodNewer(ctx, "uid-s0"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for a look: %v", err)
		}
		if _, err := d.Subscribe(&at); err != nil {
			t.Error(err)
		}
		release()
		synctest.Wait()
		if n := int(d.Position().Seq - at.Seq); n != 2*taken {
			t.Errorf("%d entries, want two for each of %d events", n, taken)
		}
		d.stop()
	})
}
