package watch_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/watch"
)

// writer is a source that only tells whether it is busy.
type writer struct {
	watch.Source
	busy atomic.Bool
}

func (w *writer) Busy() bool { return w.busy.Load() }

// rest has n readers rest a number of times each after a number of events, in
// virtual time, and returns how long that takes all of them.
func rest(t *testing.T, turns *watch.Turns, w *writer, n, times, events int) time.Duration {
	t.Helper()
	begin := time.Now()
	done := make(chan error)
	for range n {
		go func() {
			var err error
			for range times {
				err = errors.Join(err, turns.Rest(t.Context(), w, events))
			}
			done <- err
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return time.Since(begin)
}

// What happens once comes to a hundred readers at once, a storm at the rate that all
// of them share, and while the source is busy at a small part of that.
func TestTurns(t *testing.T) {
	for _, tc := range []struct {
		name                 string
		readers, times, read int
		busy                 bool
		least, most          time.Duration
	}{
		{"one event for each of a hundred", 100, 1, 1, false, 0, 0},
		{"1,000,000 events", 100, 50, 200, false, 5 * time.Second, 7 * time.Second},
		{"no more than one turn each, which is a lot", 100, 1, 1 << 20, false, time.Second, 3 * time.Second},
		{"20,000 events while it is busy", 100, 1, 200, true, 4 * time.Second, 6 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &writer{}
				w.busy.Store(tc.busy)
				if took := rest(t, watch.NewTurns(), w, tc.readers, tc.times, tc.read); took < tc.least || took > tc.most {
					t.Errorf("took %v, want %v to %v", took, tc.least, tc.most)
				}
			})
		})
	}
}

// Who waits for a busy source goes on soon after it has caught up, and ends with its
// context.
func TestTurnsOfABusySource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, turns := &writer{}, watch.NewTurns()
		w.busy.Store(true)
		time.AfterFunc(time.Second, func() { w.busy.Store(false) })
		if took := rest(t, turns, w, 100, 1, 256); took < time.Second || took > 1200*time.Millisecond {
			t.Errorf("took %v", took)
		}
		begin := time.Now()
		if err := turns.GiveWay(t.Context(), w); err != nil || time.Since(begin) > 0 {
			t.Errorf("gives way to nobody for %v, %v", time.Since(begin), err)
		}
		w.busy.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		errs := make(chan error)
		for range 2 {
			go func() { errs <- turns.Rest(ctx, w, 1<<20) }()
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		}
		begin = time.Now()
		if err := turns.GiveWay(t.Context(), w); err != nil || time.Since(begin) == 0 {
			t.Errorf("gives way for %v, %v", time.Since(begin), err)
		}
		if err := turns.GiveWay(ctx, w); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}

// A hundred readers that are woken by a storm read a small part of what they could
// without one, from its first moment on.
func TestTurnsInAStorm(t *testing.T) {
	for _, tc := range []struct {
		busy        bool
		least, most int // events that all read in a second
	}{
		{false, 150_000, 200_000},
		{true, 3_000, 4_200},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, turns := &writer{}, watch.NewTurns()
			w.busy.Store(tc.busy)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var read atomic.Int64
			var readers sync.WaitGroup
			for range 100 {
				readers.Go(func() {
					for err := turns.GiveWay(ctx, w); err == nil; {
						most := turns.Most(w)
						read.Add(int64(most))
						err = turns.Rest(ctx, w, most)
					}
				})
			}
			readers.Wait()
			if n := int(read.Load()); n < tc.least || n > tc.most {
				t.Errorf("busy %t: %d events were read, want %d to %d", tc.busy, n, tc.least, tc.most)
			}
		})
	}
}
