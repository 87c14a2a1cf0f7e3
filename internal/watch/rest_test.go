package watch_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/watch"
)

// queue notes in which order readers have had their turns at a busy source.
type queue struct {
	mu    sync.Mutex
	order []int
}

func (q *queue) had() []int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.order)
}

// waiting is a busy source as one reader sees it. A reader asks once whether it has to
// wait, and again when it is its turn.
type waiting struct {
	watch.Source
	queue *queue
	i     int
	asked int
}

func (w *waiting) Busy() bool {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	if w.asked++; w.asked == 2 {
		w.queue.order = append(w.queue.order, w.i)
	}
	return true
}

// numbers are those from 0 on.
func numbers(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// While the source is busy readers go on in the order in which they came.
func TestBusyReadersGoOnInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20
		turns, q := watch.NewTurns(), &queue{}
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if err := turns.GiveWay(t.Context(), &waiting{queue: q, i: i}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if had := q.had(); !slices.Equal(had, numbers(n)) {
			t.Errorf("turns in the order %v", had)
		}
	})
}

// A reader that waits behind many others for a busy source hears in time that there is
// nothing, and keeps its place.
func TestKeepaliveWhileItGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const before, after = 8, 4
		ctx, cancel := context.WithCancel(t.Context())
		turns, q := watch.NewTurns(), &queue{}
		var all sync.WaitGroup
		others := func(from, n int) {
			for i := from; i < from+n; i++ {
				all.Go(func() { _ = turns.Rest(ctx, &waiting{queue: q, i: i}, 1<<20) }) // most of a second
				synctest.Wait()
				time.Sleep(25 * time.Millisecond) // the price of it, so that they come one after the other
			}
		}
		others(0, before)
		var bookmarks atomic.Int32
		passed := int32(-1) // how many of them its reader was told to pass on
		pass := func() error { passed = bookmarks.Load(); return nil }
		w := begin(t, &waiting{Source: idle(t), queue: q, i: before}, watch.Request{Keepalive: time.Second, Turns: turns, Idle: pass})
		all.Go(func() {
			for last := time.Now(); ; last = time.Now() {
				m, err := w.Next(ctx)
				switch {
				case errors.Is(err, context.Canceled):
					return
				case err != nil || m.Bookmark == nil:
					t.Errorf("message %+v, %v", m, err)
					return
				case time.Since(last) != time.Second && bookmarks.Load() > 0: // the first one comes at once
					t.Errorf("a bookmark after %v", time.Since(last))
				case bookmarks.Load() > 0 && passed != bookmarks.Load():
					t.Errorf("%d bookmarks are passed on of %d", passed, bookmarks.Load())
				}
				bookmarks.Add(1)
			}
		})
		synctest.Wait()
		others(before+1, after)
		for len(q.had()) <= before {
			time.Sleep(25 * time.Millisecond)
		}
		if n := bookmarks.Load(); n < 5 {
			t.Errorf("%d bookmarks until its turn", n)
		}
		for len(q.had()) <= before+after {
			time.Sleep(25 * time.Millisecond)
		}
		if had := q.had(); !slices.Equal(had[:before+after+1], numbers(before+after+1)) {
			t.Errorf("turns in the order %v, the watch's is %d", had, before)
		}
		cancel()
		all.Wait()
	})
}

// turnsOwed is more than what is owed at most.
const turnsOwed = 3 * time.Second

// Readers that come and go, and never wait to the end, leave the others no debt that
// grows as long as they do that.
func TestReadersThatComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, w := watch.NewTurns(), &writer{}
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range 1000 {
				all.Go(func() { _ = turns.Rest(ctx, w, 0) })
			}
			synctest.Wait()
			cancel()
			all.Wait()
		}
		for i, most := range []time.Duration{2 * time.Second, time.Millisecond} {
			begin := time.Now()
			if err := turns.Rest(t.Context(), w, 0); err != nil || time.Since(begin) > most {
				t.Errorf("another one waits for %v in its turn %d, %v", time.Since(begin), i, err)
			}
			time.Sleep(turnsOwed) // all that may be owed is over by then
		}
	})
}

// stormy is a generator that says that it is busy.
type stormy struct {
	*pleg.Generator
	busy atomic.Bool
}

func (s *stormy) Busy() bool { return s.busy.Load() }

// An event that was read while the source is busy, and can't be sent yet, comes after
// the bookmarks that come meanwhile, and is not behind their position.
func TestBookmarkBeforeAnEventThatWaits(t *testing.T) {
	n := rpctest.New(t)
	a := n.Start()
	a.Settle()
	src := &stormy{Generator: a.Generator}
	ctx, cancel := context.WithTimeout(t.Context(), rpctest.Timeout)
	turns := watch.NewTurns()
	w := begin(t, src, watch.Request{Keepalive: time.Second, Turns: turns})
	messages := make(chan watch.Message, 100)
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
	}()
	all.Go(func() {
		defer close(messages)
		for ctx.Err() == nil {
			if m, err := w.Next(ctx); err == nil {
				messages <- m
			}
		}
	})
	begun := (<-messages).Bookmark.Position
	<-messages // it waits for an event since a second
	src.busy.Store(true)
	others := make(chan struct{})
	for range 10 { // they have their turns before it
		all.Go(func() {
			others <- struct{}{}
			_ = turns.Rest(ctx, src, 1<<20)
		})
		<-others
	}
	time.Sleep(50 * time.Millisecond)
	n.Pod("web")
	a.Settle()
	for {
		m := <-messages
		if m.Bookmark == nil {
			t.Fatalf("message %+v before it had to wait", m)
		}
		if m.Bookmark.Position != begun {
			t.Fatalf("a bookmark at %s, and the event after %s has not come", m.Bookmark.Position, begun)
		}
		if a.Generator.Position() != begun {
			break
		}
	}
	src.busy.Store(false)
	for _, want := range a.Journal() {
		if want.Position.Seq <= begun.Seq {
			continue
		}
		m := <-messages
		for m.Bookmark != nil {
			m = <-messages
		}
		if m.Event == nil || m.Event.Position != want.Position {
			t.Fatalf("message %+v, want %s", m, want.Position)
		}
	}
}
