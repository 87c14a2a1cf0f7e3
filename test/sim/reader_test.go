package sim_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store"
)

// reader follows the journal over all lives of the agent, and checks what it
// gets: numbers without gaps, and none with two contents.
type reader struct {
	w *world
	pace
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu     sync.Mutex
	at     *pleg.Position
	events []told
	pairs  [][2]pleg.Position // each event's position, after the one before it without a loss between
	resets int
}

// told is an event as a reader got it.
type told struct {
	read time.Time
	pleg.Event
	life *life
}

// attach lets a reader go on in a new life.
func (r *reader) attach(l *life) {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	if r.at == nil && !r.fromNow {
		r.at = new(l.g.Position())
	}
	sub := r.subscribe(l)
	r.ended.Go(func() { r.follow(ctx, l, sub) })
}

func (r *reader) detach() {
	r.cancel()
	r.ended.Wait()
}

// subscribe goes on where the reader was. A position that was lost must be one
// that may be.
func (r *reader) subscribe(l *life) *pleg.Subscription {
	sub, err := l.g.Subscribe(r.at)
	if errors.Is(err, pleg.ErrExpired) {
		r.lost(err)
		sub, err = l.g.Subscribe(r.at)
	}
	if err != nil {
		r.w.fail("reader %s: %v", r.name, err)
	}
	return sub
}

// lost deals with a position that has expired: where it was told from memory
// and never written, the reader takes back what it got and goes on before it;
// where the journal was lost, at what is left. What was told before that is in
// the state that goes on, so it is not told again.
func (r *reader) lost(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resets++
	r.w.count("positions lost", 1)
	gone := 0
	for n := len(r.events); n > 0 && !r.w.disk.has(r.events[n-1].Position) && !r.w.disk.ended(r.events[n-1].Position.Epoch); n-- {
		r.events = r.events[:n-1]
		gone++
	}
	if gone > 0 && len(r.events) > 0 {
		r.at = new(r.events[len(r.events)-1].Position)
		if _, err := r.w.life.g.Subscribe(r.at); err == nil {
			return
		}
	}
	if (gone == 0 || len(r.events) > 0) && !r.w.mayForget(*r.at) {
		r.w.fail("reader %s: lost its position without a reason: %v", r.name, err)
	}
	r.at = new(r.w.life.g.Oldest())
}

// mayForget says whether the journal of an epoch may have been lost: another epoch
// goes on, each of which begins only with a store that was begun anew, or in a run
// that could not reserve its first numbers (D2; see disk.names).
func (w *world) mayForget(at pleg.Position) bool {
	oldest := w.life.g.Oldest()
	if oldest.Epoch == at.Epoch && w.p.keep > 0 && at.Seq < oldest.Seq {
		w.count("positions that the journal kept no longer", 1)
		return true
	}
	// Memory may still hold the last of it.
	return oldest.Epoch != at.Epoch || w.life.g.Position().Epoch != at.Epoch
}

// follow reads until the life ends.
func (r *reader) follow(ctx context.Context, l *life, sub *pleg.Subscription) {
	got := 0
	for sub != nil {
		ev, err := sub.Next(ctx)
		if l.dead.Load() {
			return
		}
		if errors.Is(err, pleg.ErrExpired) { // slower than the commit that names a new epoch (D2)
			r.lost(err)
			sub = r.subscribe(l)
			continue
		}
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, pleg.ErrStopped) {
				r.w.fail("reader %s: %v", r.name, err)
			}
			return
		}
		r.take(l, ev)
		got++
		if !r.sleep(ctx, r.think) {
			return
		}
		if r.dies > 0 && got%r.dies == 0 {
			if !r.sleep(ctx, r.away) {
				return
			}
			sub = r.subscribe(l)
		}
	}
}

func (r *reader) sleep(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	case <-r.w.hurry:
		return true
	}
}

// take checks one event.
func (r *reader) take(l *life, ev *pleg.Event) {
	r.w.contents.check(r.w, r.name, ev)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at != nil {
		r.pairs = append(r.pairs, [2]pleg.Position{*r.at, ev.Position})
		if why := follows(*r.at, ev); why != "" {
			r.w.fail("reader %s: after %v: %s", r.name, *r.at, why)
		}
	}
	r.at = new(ev.Position)
	r.events = append(r.events, told{time.Now(), *ev, l})
}

// follows says why an event is not the next after a position, "" if it is.
func follows(at pleg.Position, ev *pleg.Event) string {
	want := at.Seq + 1
	switch {
	case ev.Position.Epoch != at.Epoch:
		if ev.Position.Seq != 1 {
			return fmt.Sprintf("a new epoch begins with %v", ev.Position)
		}
		return ""
	case ev.Type == store.SequenceSkipped:
		if ev.From > want || ev.To+1 != ev.Position.Seq {
			return fmt.Sprintf("%v says that %d to %d are skipped", ev.Position, ev.From, ev.To)
		}
		return ""
	case ev.Position.Seq != want:
		return fmt.Sprintf("%v comes, a gap or a repetition", ev.Position)
	}
	return ""
}

// sameOrder checks that each reader had, from one loss to the next, a stretch of what
// the main reader had: after each event the same one came.
func (w *world) sameOrder() {
	next := map[pleg.Position][]pleg.Position{}
	for _, p := range w.main.pairs {
		next[p[0]] = append(next[p[0]], p[1])
		if p[1].Seq == 1 { // nothing was told under the epoch before
			begin := pleg.Position{Epoch: p[1].Epoch}
			next[begin] = append(next[begin], p[1])
		}
	}
	for _, r := range w.readers {
		for _, p := range r.pairs {
			if len(next[p[0]]) > 0 && !slices.Contains(next[p[0]], p[1]) {
				w.fail("reader %s: after %v comes %v, to others came %v", r.name, p[0], p[1], next[p[0]])
				return
			}
			if len(next[p[0]]) == 0 && w.main.resets == 0 {
				w.fail("reader %s: after %v comes %v, which nobody else had", r.name, p[0], p[1])
				return
			}
			w.count("pairs of events that readers had in the same order", 1)
		}
	}
}

// contents is what was told under each position (D2).
type contents struct {
	mu sync.Mutex
	m  map[pleg.Position]pleg.Event
}

func (c *contents) check(w *world, who string, ev *pleg.Event) {
	e := *ev
	e.Volatile = false // says how it came, not what happened
	c.mu.Lock()
	was, ok := c.m[e.Position]
	if c.m == nil {
		c.m = map[pleg.Position]pleg.Event{}
	}
	c.m[e.Position] = e
	c.mu.Unlock()
	if ok && !reflect.DeepEqual(was, e) {
		w.fail("D2: reader %s: %v has two contents: %s", who, e.Position, cmp.Diff(was, e))
	}
}

// has says whether an event was written, for all that is known.
func (d *disk) has(p pleg.Position) bool { return d.by(p) != nil }

// by returns which life wrote an event first, nil for none.
func (d *disk) by(p pleg.Position) *life {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.written[p]
}

// renewals returns how often the journal was lost.
func (d *disk) renewals() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.renewed
}

// in says whether the disk was in trouble at a time, or lately.
func (d *disk) in(at time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.trouble {
		if !at.Before(s.from) && (s.to.IsZero() || at.Before(s.to.Add(mended))) {
			return true
		}
	}
	return false
}
