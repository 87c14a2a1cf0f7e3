package generic

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/note"
	"github.com/plegd/plegd/timestamps"
)

// listLoop makes the full lists, one at a time.
func (r *Relister) listLoop(ctx context.Context) {
	jitter := r.random()
	first, ended := true, time.Duration(0)
	for ctx.Err() == nil {
		now := r.cfg.Clock.Mono()
		due, ok := r.listDue(first, ended, jitter)
		if ok && due <= now {
			r.fullList(ctx)
			first, ended, jitter = false, r.cfg.Clock.Mono(), r.random()
			continue
		}
		r.wait(ctx, r.listWake, due, ok)
	}
}

// random draws a number, as inspections do: one at a time.
func (r *Relister) random() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cfg.Random()
}

// listDue returns when the next full list is to be sent. A note in listWake
// makes the loop ask again, so that a period that shrank counts at once, from
// the end of the last list.
func (r *Relister) listDue(first bool, ended time.Duration, jitter float64) (due time.Duration, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.cfg.NoPeriod {
		ok = true
		if !first {
			due = ended + jittered(r.period.current, r.period.base, jitter)
		}
	}
	want := func(at time.Duration) {
		if !first {
			at = max(at, ended+listGap)
		}
		if !ok || at < due {
			due, ok = at, true
		}
	}
	if len(r.waiters) > 0 {
		want(0)
	}
	if r.asked != nil {
		want(*r.asked)
	}
	return due, ok
}

// wait returns when there is a note in wake, the time has come, or ctx has ended.
func (r *Relister) wait(ctx context.Context, wake <-chan struct{}, due time.Duration, timed bool) {
	var fire <-chan time.Time
	if timed {
		t := r.cfg.Clock.NewTimer(max(due-r.cfg.Clock.Mono(), 0))
		defer t.Stop()
		fire = t.C
	}
	select {
	case <-ctx.Done():
	case <-wake:
	case <-fire:
	}
}

// fullList makes one full list and answers all that waited for it.
func (r *Relister) fullList(ctx context.Context) {
	waiters, asked := r.takeWanted()
	sent := r.cfg.Clock.Mono()
	l, err := r.list(ctx, nil, nil)
	if ctx.Err() != nil {
		r.drop(l) // that it failed says nothing of the runtime
		return
	}
	if cri.TooLarge(err) {
		err = fmt.Errorf("list answer is too large: %w", err)
	}
	if err != nil && asked != nil && *asked > sent { // its time is still to come
		r.mu.Lock()
		r.askLocked(*asked)
		r.mu.Unlock()
	}
	r.noteList(l, err)
	r.submitList(arbiter.Scope{}, l, err)
	for _, done := range waiters {
		done <- err
	}
}

// takeWanted takes the questions that a list sent now may answer.
func (r *Relister) takeWanted() (waiters []chan error, asked *time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiters, asked = r.waiters, r.asked
	r.waiters, r.asked = nil, nil
	return waiters, asked
}

// noteList keeps the status and tells the observer.
func (r *Relister) noteList(l listing, err error) {
	r.mu.Lock()
	s := &r.status
	interval := time.Duration(0)
	if s.Started.Tick != 0 {
		interval = time.Duration(l.first().Since(s.Started))
	}
	s.Started, s.Ended = l.first(), l.ended
	s.Malformed += uint64(l.dropped)
	failures := s.Failures
	if err != nil {
		if s.Failures++; s.Failures == 1 {
			s.FailingSince = l.ended
		}
		s.Err = err.Error()
		r.tries++
		r.period.shrink() // doubt: it is asked again at the base period
	} else {
		s.Succeeded, s.Failures, s.Err, s.FailingSince = l.ended, 0, "", timestamps.Stamp{}
		s.Promised = r.period.current
		r.tries = 0
		r.recover = r.recover || failures > 0
		r.starts.node = len(l.sandboxes) + len(l.containers)
	}
	r.mu.Unlock()

	if err == nil && failures > 0 {
		note.Leave(r.inspectWake)
	}
	if r.cfg.Observer != nil {
		r.cfg.Observer.Relisted(time.Duration(l.ended.Since(l.first())), interval, err)
	}
}

// listing is the outcome of the two calls of a list.
type listing struct {
	sandboxes, containers      []arbiter.Item
	sandboxCall, containerCall arbiter.Call
	ended                      timestamps.Stamp
	dropped                    int
}

func (l listing) first() timestamps.Stamp { return l.sandboxCall.Sent }

// list makes the two calls of a list, sandboxes first. Each has the deadline
// of a call.
func (r *Relister) list(ctx context.Context, sf *runtimeapi.PodSandboxFilter, cf *runtimeapi.ContainerFilter) (l listing, err error) {
	l.sandboxCall.Sent = r.cfg.Calls.Begin(timestamps.FromRelist)
	sandboxes, err := bounded(ctx, r, func(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
		return r.cfg.Runtime.ListPodSandbox(ctx, sf)
	})
	l.sandboxCall.Answered = r.cfg.Calls.Answered(timestamps.FromRelist)
	l.ended = l.sandboxCall.Answered
	if err != nil {
		return l, err
	}
	l.containerCall.Sent = r.cfg.Calls.Begin(timestamps.FromRelist)
	containers, err := bounded(ctx, r, func(ctx context.Context) ([]*runtimeapi.Container, error) {
		return r.cfg.Runtime.ListContainers(ctx, cf)
	})
	l.containerCall.Answered = r.cfg.Calls.Answered(timestamps.FromRelist)
	l.ended = l.containerCall.Answered
	if err != nil {
		return l, err
	}
	var noSandbox, noContainer int
	l.sandboxes, noSandbox = cri.Sandboxes(sandboxes)
	l.containers, noContainer = cri.Containers(containers)
	l.dropped = noSandbox + noContainer
	return l, nil
}

// submitList hands over what came of a list.
func (r *Relister) submitList(scope arbiter.Scope, l listing, err error) {
	if err != nil {
		r.drop(l)
		r.cfg.Sink.Submit(&arbiter.ListFailed{Scope: scope, At: l.ended, Err: err.Error()})
		return
	}
	r.cfg.Sink.Submit(&arbiter.ListSeen{
		Scope:     scope,
		Sandboxes: l.sandboxes, SandboxCall: l.sandboxCall,
		Containers: l.containers, ContainerCall: l.containerCall,
	})
}

// drop ends the calls of a list that no submission carries.
func (r *Relister) drop(l listing) {
	r.end(l.sandboxCall)
	r.end(l.containerCall)
}

func (r *Relister) end(c arbiter.Call) {
	if c.Sent.Tick != 0 {
		r.cfg.Calls.End(c.Sent.Tick)
	}
}

// bounded makes a call with the deadline of a call.
func bounded[T any](ctx context.Context, r *Relister, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.RPCTimeout)
	defer cancel()
	return call(ctx)
}
