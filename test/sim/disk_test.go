package sim_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// disk is what holds the state: its faults last over the lives of the agent,
// and it remembers what was written.
type disk struct {
	mu      sync.Mutex
	broken  error                         // each commit fails so, before anything is written
	mends   bool                          // copying the state elsewhere helps
	renews  bool                          // beginning anew helps
	unsure  int                           // so many commits fail after they wrote
	hung    []chan struct{}               // commits wait for the end of each
	killIn  int                           // the agent is killed at this commit from now, 0 never
	killed  chan<- *life                  // told then
	after   bool                          // after it was written
	trouble []span                        // times at which something was wrong
	written map[timestamps.Position]*life // by which life first
	renewed int                           // times that the journal was lost
	over    map[timestamps.Epoch]bool     // epochs that ended so, or before
	epochs  []timestamps.Epoch            // those that the file was given, one after the other
	odd     []string                      // what was given that may not be
	rescued int
	failed  int
	commits int
}

// span is a time; to is zero while it lasts.
type span struct{ from, to time.Time }

func newDisk(killed chan<- *life) *disk {
	return &disk{written: map[timestamps.Position]*life{}, over: map[timestamps.Epoch]bool{}, killed: killed}
}

// fails begins or ends a fault that lasts.
func (d *disk) fails(err error, mends, renews bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken, d.mends, d.renews = err, mends, renews
	d.note()
}

// note notes that trouble begins or ends, which it does with the last fault of
// those that overlap.
func (d *disk) note() {
	begins := d.broken != nil || d.unsure > 0 || len(d.hung) > 0
	n := len(d.trouble)
	open := n > 0 && d.trouble[n-1].to.IsZero()
	switch {
	case begins && !open:
		d.trouble = append(d.trouble, span{from: time.Now()})
	case !begins && open:
		d.trouble[n-1].to = time.Now()
	}
}

// hang makes commits wait.
func (d *disk) hang() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	gate := make(chan struct{})
	d.hung = append(d.hung, gate)
	d.note()
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.hung = slices.DeleteFunc(d.hung, func(g chan struct{}) bool { return g == gate })
		close(gate)
		d.note()
	})
}

// held is the store of one life.
type held struct {
	*storetest.Faulty
	d *disk
	l *life
}

func (d *disk) hold(inner store.Store, l *life) *held {
	h := &held{Faulty: storetest.NewFaulty(inner), d: d, l: l}
	h.OnRescue(func(cause error) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.broken != nil && !d.mends {
			return fmt.Errorf("copy: %w", d.broken)
		}
		d.broken = nil
		d.note()
		d.rescued++
		return nil
	})
	h.OnRenew(func(cause error) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.broken != nil && !d.renews {
			return fmt.Errorf("fresh file: %w", d.broken)
		}
		d.broken = nil
		d.note()
		d.renewed++
		return nil
	})
	return h
}

// Commit implements [store.Store].
func (h *held) Commit(b *store.Batch) error {
	d := h.d
	d.mu.Lock()
	gates := slices.Clone(d.hung)
	d.mu.Unlock()
	for _, gate := range gates {
		select {
		case <-gate:
		case <-h.l.gone:
		}
	}
	if h.l.dead.Load() {
		return store.ErrClosed // nothing gets out of a process that was killed
	}
	d.mu.Lock()
	kill := d.killNow()
	broken, after := d.broken, d.after
	unsure := false
	if broken == nil && d.unsure > 0 {
		d.unsure--
		unsure = true
	}
	d.mu.Unlock()
	switch {
	case kill && !after:
		h.die()
		return store.ErrClosed
	case broken != nil:
		h.FailBefore(1, broken)
	case unsure:
		h.FailAfter(1, store.ErrIO)
	}
	err := h.Faulty.Commit(b)
	if err == nil || unsure {
		d.names(h.l, b.Meta.Epoch, false)
	}
	d.mu.Lock()
	d.commits++
	if err != nil {
		d.failed++
	}
	if err == nil || unsure {
		for i := range b.Events {
			if p := b.Events[i].Position; d.written[p] == nil {
				d.written[p] = h.l
			}
		}
	}
	d.mu.Unlock()
	if kill {
		h.die()
		return store.ErrClosed
	}
	return err
}

// Rescue implements [store.Rescuer].
func (h *held) Rescue(cause error) error {
	return h.mend(func() error { return h.Faulty.Rescue(cause) })
}

// Renew implements [store.Rescuer].
func (h *held) Renew(cause error, first *store.Batch) error {
	return h.mend(func() error {
		err := h.Faulty.Renew(cause, first)
		if err == nil {
			h.d.ends(h.l.g.Position().Epoch, first.Meta.Epoch)
			h.d.names(h.l, first.Meta.Epoch, true)
		}
		return err
	})
}

// mend does one of the two. The agent can be killed before and after it, as at a commit.
func (h *held) mend(do func() error) error {
	d := h.d
	if h.l.dead.Load() {
		return store.ErrClosed
	}
	d.mu.Lock()
	kill, after := d.killNow(), d.after
	d.mu.Unlock()
	if kill && !after {
		h.die()
		return store.ErrClosed
	}
	err := do()
	if kill {
		h.die()
		return store.ErrClosed
	}
	return err
}

// names notes the epoch that a commit names. A new one is named only by a store that
// is begun anew, or by a run that couldn't reserve its first numbers: the disk was in
// trouble when it began (D2).
func (d *disk) names(l *life, e timestamps.Epoch, renewed bool) {
	inTrouble := d.in(l.began) || l.w.p.keep > 0 && d.in(time.Now()) // then more may wait to be written than is kept
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.epochs); n > 0 && d.epochs[n-1] == e {
		return
	}
	if len(d.epochs) > 0 && !renewed && !inTrouble {
		d.odd = append(d.odd, fmt.Sprintf("life %d begins epoch %v, and its first numbers could be reserved", l.n, e))
	}
	d.epochs = append(d.epochs, e)
}

// killNow counts a commit and says whether the agent is to be killed at it. The
// caller holds the lock.
func (d *disk) killNow() bool {
	if d.killIn == 0 {
		return false
	}
	d.killIn--
	return d.killIn == 0
}

// ends notes that the journal was lost: the state that the new one begins with
// has all that was told under epochs before it.
func (d *disk) ends(last, next timestamps.Epoch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over[last] = true
	for p := range d.written {
		d.over[p.Epoch] = true
	}
	delete(d.over, next) // it goes on where no number of it was given out
}

// ended says whether the journal of an epoch was lost.
func (d *disk) ended(e timestamps.Epoch) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over[e]
}

// die is a kill at a commit.
func (h *held) die() {
	h.l.die()
	h.d.killed <- h.l
}

// Close implements [store.Store].
func (h *held) Close() error { return h.Faulty.Close() }

// troubled says whether the disk was in trouble at any time from one to another, or
// a while before.
func (d *disk) troubled(from, to time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.trouble, func(s span) bool {
		return !s.from.After(to) && (s.to.IsZero() || from.Before(s.to.Add(mended)))
	})
}

// mended is how long after its end a trouble of the disk may still be felt: a failed
// commit is tried again after 10 s at most.
const mended = 11 * time.Second

// firm says whether what was learnt must have been written by the end of that
// life. A disk in trouble is tried again after 10 s at most; a kill within a
// second of the learning counts as too early. Of the lists that come while a
// commit hangs only the newest two are kept, so none of them is held against it.
func (d *disk) firm(s sighting) bool {
	const retry, window = mended, time.Second
	l, at := s.life, s.at
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.hung && s.by == byList {
		return false
	}
	if l.ended.IsZero() {
		return true
	}
	for _, t := range d.trouble {
		to := t.to
		if to.IsZero() {
			to = l.ended
		}
		if to = to.Add(retry); at.Add(window).After(t.from) && at.Before(to) {
			at = to
		}
	}
	if !l.killed {
		return !at.After(l.stopping)
	}
	return !at.Add(window).After(l.ended)
}

// TestTroubleLastsAsLongAsOneFaultOfTheDisk: faults of the disk overlap, and
// what is learnt in one of them is not held against the agent.
func TestTroubleLastsAsLongAsOneFaultOfTheDisk(t *testing.T) {
	d := newDisk(nil)
	first, second := d.hang(), d.hang()
	open := func() bool { return d.trouble[len(d.trouble)-1].to.IsZero() }
	second()
	if !d.hanging() || !open() {
		t.Error("the first commits still hang")
	}
	d.fails(store.ErrFull, false, false)
	d.fails(nil, false, false)
	if !open() {
		t.Error("the end of another fault ended it")
	}
	first()
	if d.hanging() || open() {
		t.Error("it never ends")
	}
}
