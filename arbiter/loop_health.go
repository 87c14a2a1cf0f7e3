package arbiter

import (
	"sync"
	"time"
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
	StoreFails  time.Duration // for how long commits have failed, by the monotonic clock
	Faults      int           // entities whose last inspection failed
	Reinspect   int           // entries of the reinspection queue
	Queued      int           // events that wait for the loop
}

// healthState is the part of Health that needs remembering.
type healthState struct {
	mu        sync.Mutex
	h         Health
	storeMono int64 // when commits began to fail
	storeErr  error
}

// seen takes note of inputs that concern health.
func (s *healthState) seen(in Input) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch in := in.(type) {
	case *ListSeen:
		if in.Scope.All() {
			s.h.ListError, s.h.ListFailing = "", time.Time{}
		}
	case *ListFailed:
		if in.Scope.All() {
			s.h.ListError = in.Err
			if s.h.ListFailing.IsZero() {
				s.h.ListFailing = time.Unix(0, in.At.Wall)
			}
		}
	case *StreamChanged:
		if in.State != s.h.Stream || s.h.StreamSince.IsZero() {
			s.h.StreamSince = time.Unix(0, in.At.Wall)
		}
		s.h.Stream, s.h.StreamError = in.State, in.Err
	}
}

func (s *healthState) storeFailed(err error, now time.Time, mono int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storeErr = err
	s.h.StoreError = err.Error()
	if s.h.StoreSince.IsZero() {
		s.h.StoreSince, s.storeMono = now, mono
	}
}

func (s *healthState) storeWorks() {
	s.mu.Lock()
	defer s.mu.Unlock()
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
	if h.StoreError != "" {
		h.StoreFails = time.Duration(max(0, mono-l.health.storeMono))
	}
	l.health.mu.Unlock()
	h.Progress = time.Duration(max(0, mono-l.progress.Load()))
	l.view.mu.RLock()
	// Not what the core has applied: while the store fails, readers see what
	// was before.
	if h.Relisted = l.view.freshAll != 0; h.Relisted {
		h.RelistAge = time.Duration(max(0, mono-l.view.relisted))
	}
	h.Faults, h.Reinspect = len(l.view.faults), len(l.view.asks)
	l.view.mu.RUnlock()
	h.Queued = l.Queued()
	return h
}
