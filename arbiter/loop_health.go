package arbiter

import (
	"slices"
	"sync"
	"time"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// Health is what the loop knows of its own state and its inputs. Times are
// the agent's wall clock, zero where it hasn't happened; ages of the process
// are monotonic.
type Health struct {
	Progress    time.Duration // since the loop last turned
	Relisted    bool          // what a full list of this run found can be read
	RelistAge   time.Duration // since the newest full list was sent whose findings can be read
	ListError   string        // why the last full list failed, "" if it didn't
	ListFailing time.Time     // since when full lists fail
	Stream      StreamState
	StreamSince time.Time
	StreamError string // why the stream is not up, "" if it is
	StoreError  string // why the last commit failed, "" if it didn't
	StoreSince  time.Time
	Resets      int           // how often in this run the state was lost and begun anew
	ResetReason string        // why the last time
	ResetAside  string        // where what there was of it was put, "" if nowhere
	ResetAt     time.Time     // when
	Faults      []PodFault    // pods of which something can't be inspected, the longest first
	ClockStep   time.Duration // the last step of the wall clock that was noticed, 0 for none
	Stepped     time.Time     // when it was noticed, by the wall clock after it
	StepAge     time.Duration // since then, by the monotonic clock
	Reinspect   int           // entries of the reinspection queue
	Queued      int           // events that wait for the loop
}

// PodFault is a pod of which the last inspection of at least one sandbox or
// container failed.
type PodFault struct {
	Key      string       // of the pod
	Pod      store.PodRef // its name, zero where it isn't known
	Entities int          // sandboxes and containers whose last inspection failed
	Since    time.Time    // when the first of the failures in a row was answered, zero for one of an earlier run
	Err      string       // the error of the one that began to fail last
}

// healthState is the part of Health that needs remembering.
type healthState struct {
	mu       sync.Mutex
	h        Health
	storeErr error
	stepMono int64            // when the last clock step was noticed
	faults   map[string]fault // by id; also of what is gone since, see forgetFaults
	changed  chan struct{}    // capacity 1, nil until somebody asks for it
}

// fault is since when an id can't be inspected, and why.
type fault struct {
	since time.Time
	mono  int64
	err   string
}

// HealthChanged returns a channel that holds a note whenever full lists or the
// store have begun or ceased to fail, the stream has changed, the state was
// begun anew or a clock step was noticed. There is one for the loop, so there
// can be one reader. What only time changes, an age, leaves no note, nor does
// another error while the first goes on, nor a pod that can't be inspected,
// which counts only when it lasts: who shows those looks from time to time.
func (l *Loop) HealthChanged() <-chan struct{} {
	s := &l.health
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{}, 1)
	}
	return s.changed
}

// note tells the reader of HealthChanged; the caller holds the lock.
func (s *healthState) note() {
	select {
	case s.changed <- struct{}{}: // never, where it is nil
	default:
	}
}

// seen takes note of inputs that concern health.
func (s *healthState) seen(in Input) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch in := in.(type) {
	case *ListSeen:
		if !in.Scope.All() {
			s.faulty(in.Scope.Sandbox, "", in.SandboxCall.Answered)
			return
		}
		if s.h.ListError != "" {
			s.note()
		}
		s.h.ListError, s.h.ListFailing = "", time.Time{}
	case *ListFailed:
		if !in.Scope.All() {
			s.faulty(in.Scope.Sandbox, in.Err, in.At)
			return
		}
		if s.h.ListFailing.IsZero() {
			s.h.ListFailing = time.Unix(0, in.At.Wall)
			s.note()
		}
		s.h.ListError = in.Err
	case *StatusSeen:
		s.faulty(in.ID, in.Err, in.Call.Answered)
	case *StreamChanged:
		if in.State != s.h.Stream || s.h.StreamSince.IsZero() {
			s.h.StreamSince = time.Unix(0, in.At.Wall)
		}
		s.h.Stream, s.h.StreamError = in.State, in.Err
		s.note()
	}
}

// faulty takes note of how the inspection of an id went; the caller holds the
// lock.
func (s *healthState) faulty(id, err string, at timestamps.Stamp) {
	old, was := s.faults[id]
	switch {
	case err == "" && was:
		delete(s.faults, id)
	case err == "" || id == "":
	case was:
		old.err = err
		s.faults[id] = old
	default:
		if s.faults == nil {
			s.faults = map[string]fault{}
		}
		s.faults[id] = fault{since: time.Unix(0, at.Wall), mono: at.Mono, err: err}
	}
}

// stepped takes note of a step of the wall clock, ns.
func (s *healthState) stepped(step int64, now time.Time, mono int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.h.ClockStep, s.h.Stepped, s.stepMono = time.Duration(step), now, mono
	s.note()
}

func (s *healthState) storeFailed(err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storeErr = err
	s.h.StoreError = err.Error()
	if s.h.StoreSince.IsZero() {
		s.h.StoreSince = now
		s.note()
	}
}

// storeReset takes note of a state that was lost and begun anew.
func (s *healthState) storeReset(cause error, aside string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.h.Resets++
	s.h.ResetReason, s.h.ResetAside, s.h.ResetAt = cause.Error(), aside, now
	s.note()
}

func (s *healthState) storeWorks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.storeErr != nil {
		s.note()
	}
	s.storeErr, s.h.StoreError, s.h.StoreSince = nil, "", time.Time{}
}

func (s *healthState) storeError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.storeErr
}

// Health returns the present state of health.
func (l *Loop) Health() Health {
	mono := int64(l.cfg.Clock.Mono())
	l.health.mu.Lock()
	h := l.health.h
	if h.ClockStep != 0 {
		h.StepAge = time.Duration(max(0, mono-l.health.stepMono))
	}
	l.health.mu.Unlock()
	h.Progress = time.Duration(max(0, mono-l.progress.Load()))
	l.view.mu.RLock()
	// Not what the core has applied: while a commit hangs, readers see what was
	// before.
	if h.Relisted = l.view.freshAll != 0; h.Relisted {
		h.RelistAge = time.Duration(max(0, mono-l.view.relisted))
	}
	h.Reinspect = len(l.view.asks)
	l.view.mu.RUnlock()
	h.Faults = l.podFaults(mono)
	h.Queued = l.Queued()
	return h
}

// podFaults lists the pods of which something can't be inspected: a status
// call or a look that failed and hasn't worked since.
func (l *Loop) podFaults(mono int64) []PodFault {
	ids := map[string]*store.Record{}
	l.view.mu.RLock()
	for id := range l.view.faults {
		ids[id] = l.view.recs[id] // never nil: what goes takes its fault along
	}
	for id, a := range l.view.asks {
		if r := l.view.recs[id]; a.Fails > 0 && r != nil {
			ids[id] = r
		}
	}
	l.view.mu.RUnlock()

	l.health.mu.Lock()
	defer l.health.mu.Unlock()
	pods, began := map[string]*PodFault{}, map[string]time.Time{}
	for _, id := range sortedKeys(ids) {
		r, f := ids[id], l.health.faults[id]
		p := pods[r.PodKey()]
		if p == nil {
			p = &PodFault{Key: r.PodKey(), Since: f.since}
			pods[p.Key] = p
		}
		p.Entities++
		if p.Pod == (store.PodRef{}) {
			p.Pod = r.Identity.Pod
		}
		if f.since.Before(p.Since) {
			p.Since = f.since
		}
		if f.err != "" && !f.since.Before(began[p.Key]) {
			began[p.Key], p.Err = f.since, f.err
		}
	}
	l.health.forgetFaults(ids, mono)
	list := make([]PodFault, 0, len(pods))
	for _, key := range sortedKeys(pods) {
		list = append(list, *pods[key])
	}
	slices.SortStableFunc(list, func(a, b PodFault) int { return a.Since.Compare(b.Since) })
	return list
}

// faultKept is how long a failure that readers don't see is remembered: until
// it is committed, or known to be of what is gone.
const faultKept = time.Minute

// forgetFaults drops what is remembered of ids that readers see no fault of.
func (s *healthState) forgetFaults(shown map[string]*store.Record, mono int64) {
	for id, f := range s.faults {
		if shown[id] == nil && mono-f.mono > int64(faultKept) {
			delete(s.faults, id)
		}
	}
}
