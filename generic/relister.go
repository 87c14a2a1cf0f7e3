package generic

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/note"
	"github.com/plegd/plegd/timestamps"
)

var (
	// ErrStopped is returned by [Relister.Relist] once Run has returned, or
	// after [Relister.Close].
	ErrStopped = errors.New("relister has stopped")
	// ErrRan is returned by a second [Relister.Run].
	ErrRan = errors.New("relister was run before")
)

// Relister asks the runtime: everything once per period, and whatever the
// arbiter's core wants to know. Make one with [New]; Run does the work. All
// methods are safe for concurrent use and, but for Run and Relist, never block.
type Relister struct {
	cfg     Config
	ran     atomic.Bool
	stopped chan struct{} // closed by Close
	stop    sync.Once

	listWake    chan struct{} // capacity 1: the list loop has to look again
	inspectWake chan struct{} // capacity 1: the inspection loop has to look again

	mu       sync.Mutex
	period   period
	starts   starts
	waiters  []chan error   // calls of Relist that wait, each with room for its answer
	asked    *time.Duration // the core wants a full list, not before this; nil when it doesn't
	tries    int            // full lists that failed in a row since there was a sign of life
	inbox    []arbiter.Action
	finished []finishedTask
	recover  bool // a full list worked again
	status   Status
}

type finishedTask struct {
	task     *task
	timedOut bool
}

// Status says how the relists are doing. Stamps are zero for what never
// happened.
type Status struct {
	Started      timestamps.Stamp // the last full list was sent
	Ended        timestamps.Stamp // the last full list was answered or failed
	Succeeded    timestamps.Stamp // the last complete full list was answered
	FailingSince timestamps.Stamp // the first of the failures in a row that goes on; zero while lists work
	Failures     int              // full lists failed in a row
	Err          string           // why the last full list failed, "" when it didn't
	Malformed    uint64           // list items without a usable id, since the start
	Period       PeriodStatus     // the period in force
	Promised     time.Duration    // the longest that was in force since the last complete full list: by when the next was to come
	Periodic     bool             // false in a mode without periodic relists

	Waiting    int // inspections that wait for their time or a slot
	Inspecting int // inspections in flight
	Hanging    int // of those, taking too long to keep a place that others wait for

	Throttled uint64 // inspections that had to wait because the runtime was asked much just then, since the start
}

// New returns a Relister. Errors are about the configuration.
func New(cfg Config) (*Relister, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Relister{
		cfg:         cfg,
		stopped:     make(chan struct{}),
		listWake:    make(chan struct{}, 1),
		inspectWake: make(chan struct{}, 1),
		period:      newPeriod(cfg.Base, cfg.Max),
		starts:      newStarts(),
		status:      Status{Periodic: !cfg.NoPeriod, Promised: cfg.Base},
	}, nil
}

// Run relists and inspects until ctx ends, waits for the calls in flight, which
// end with it, and returns nil. It may be called once.
func (r *Relister) Run(ctx context.Context) error {
	if r.ran.Swap(true) {
		return ErrRan
	}
	defer r.Close()
	var g errgroup.Group
	g.Go(func() error { r.listLoop(ctx); return nil })
	g.Go(func() error { r.inspectLoop(ctx); return nil })
	return g.Wait()
}

// Close ends the waiting in Relist for a Relister that is never run. Run does so
// itself.
func (r *Relister) Close() { r.stop.Do(func() { close(r.stopped) }) }

// Do takes the core's questions. Each is answered by exactly one submission:
// StatusSeen for ActStatus, ListSeen or ListFailed for the others, with
// Scope.Sandbox set for ActLook, Scope.PodUID for ActPod and none
// for ActList. One whose like waits already makes that go at
// the earlier of the two times; one whose like is in flight follows it. Any number of ActList is one wish, for the
// earliest time: every full list that succeeds fulfils it if it was sent after
// them, and one that fails does so if the wish was due. Only the end of Run
// leaves questions unanswered.
func (r *Relister) Do(actions []arbiter.Action) {
	if len(actions) == 0 {
		return
	}
	now := r.cfg.Clock.Mono()
	lists, inspections := false, false
	r.mu.Lock()
	for _, a := range actions {
		if a.Kind == arbiter.ActList {
			// The core counts the lists that it asked for; here all are seen,
			// and what says that the runtime is back.
			a.Attempt = r.tries
		}
		ready := r.readyLocked(a, now)
		if a.Kind == arbiter.ActList {
			r.askLocked(ready)
			lists = true
		} else {
			a.NotBefore = int64(ready)
			r.inbox = append(r.inbox, a)
			inspections = true
		}
	}
	r.mu.Unlock()
	if lists {
		note.Leave(r.listWake)
	}
	if inspections {
		note.Leave(r.inspectWake)
	}
}

// readyLocked is when an action may be sent.
func (r *Relister) readyLocked(a arbiter.Action, now time.Duration) time.Duration {
	ready := max(now, time.Duration(a.NotBefore))
	if a.Attempt > 0 {
		ready += delay(a.Attempt, r.cfg.Random())
	}
	return ready
}

// askLocked notes that the core wants a full list. The core asks anew after
// each list that failed, without knowing whether its question is still there:
// kept one by one, they would all be sent, for minutes, once lists work again.
func (r *Relister) askLocked(ready time.Duration) {
	if r.asked == nil || ready < *r.asked {
		r.asked = &ready
	}
}

// Relist asks for a full list that is sent after the call, and waits until it
// was submitted. It returns the list's error, ctx's, or [ErrStopped].
func (r *Relister) Relist(ctx context.Context) error {
	done := make(chan error, 1)
	r.mu.Lock()
	r.waiters = append(r.waiters, done)
	r.mu.Unlock()
	note.Leave(r.listWake)
	select {
	case err := <-done:
		return err
	case <-r.stopped:
		return ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// UpdatePeriods replaces the base period and the longest one. Errors are about
// the values, and then nothing changes.
func (r *Relister) UpdatePeriods(base, longest time.Duration) error {
	if err := checkPeriods(base, longest); err != nil {
		return err
	}
	r.changePeriod(func(p *period) { p.update(base, longest) })
	return nil
}

// StreamChanged says whether the event stream is up. Either way the period goes
// back to its base. One that came up shows that the runtime is there: a list
// that the core wants doesn't wait any longer because others have failed.
func (r *Relister) StreamChanged(up bool) {
	if up {
		r.mu.Lock()
		r.tries = 0
		if r.asked != nil {
			r.askLocked(r.cfg.Clock.Mono())
		}
		r.mu.Unlock()
		note.Leave(r.listWake)
	}
	r.changePeriod(func(p *period) { p.stream(up) })
}

// Judged hands over the core's verdict on a completed full list.
func (r *Relister) Judged(v arbiter.Relist) {
	now := r.cfg.Clock.Mono()
	r.changePeriod(func(p *period) { p.judged(v, now) })
}

// Shrink brings the period back to its base at once.
func (r *Relister) Shrink() { r.changePeriod((*period).shrink) }

// Renew says that another runtime, or another version, answers from now on. The
// period starts over without strikes, and what used to hang is asked like the
// rest.
func (r *Relister) Renew() {
	r.mu.Lock()
	r.recover = true
	r.mu.Unlock()
	note.Leave(r.inspectWake)
	r.changePeriod((*period).renew)
}

// changePeriod changes the period and lets the list loop act on it now.
func (r *Relister) changePeriod(change func(*period)) {
	r.mu.Lock()
	before := r.period
	change(&r.period)
	changed := r.period != before
	r.status.Promised = max(r.status.Promised, r.period.current)
	r.mu.Unlock()
	if changed {
		note.Leave(r.listWake)
	}
}

// Status returns how the relists are doing.
func (r *Relister) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Period = r.period.status()
	return s
}
