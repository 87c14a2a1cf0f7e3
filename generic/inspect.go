package generic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/note"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// errWrongStatus is a status that is not about what was asked for.
var errWrongStatus = errors.New("status is not about the entity asked for")

// inspectLoop lets the scheduler decide and starts what it says.
func (r *Relister) inspectLoop(ctx context.Context) {
	s := newScheduler(r.cfg.MaxInspections, r.cfg.PodGap, r.cfg.patience(), holdFactor*r.cfg.RPCTimeout,
		rate.NewLimiter(rate.Limit(r.cfg.CallRate), r.cfg.CallBurst))
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for ctx.Err() == nil {
		now := r.cfg.Clock.Mono()
		r.feed(s, now)
		start, due := s.next(now)
		r.noteDepth(s)
		for _, t := range start {
			tasks.Go(func() { r.inspect(ctx, t) })
		}
		if at, some := r.startsDue(); some && (due == 0 || at < due) {
			due = at
		}
		r.wait(ctx, r.inspectWake, due, due != 0)
	}
}

// feed hands the scheduler what has come in.
func (r *Relister) feed(s *scheduler, now time.Duration) {
	r.mu.Lock()
	listed := r.takeStartsLocked(now)
	inbox, finished, recovered := r.inbox, r.finished, r.recover
	r.inbox, r.finished, r.recover = nil, nil, false
	r.mu.Unlock()
	if listed {
		note.Leave(r.listWake)
	}
	for _, f := range finished {
		s.finish(f.task, now, f.timedOut)
	}
	if recovered {
		s.amnesty()
	}
	for _, a := range inbox {
		s.add(a, time.Duration(a.NotBefore))
	}
}

func (r *Relister) noteDepth(s *scheduler) {
	waiting, running, slow := s.depth()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Waiting, r.status.Inspecting, r.status.Hanging = waiting, running, slow
	r.status.Throttled = s.throttled
}

// inspect carries out one action and hands the task back.
func (r *Relister) inspect(ctx context.Context, t *task) {
	start := r.cfg.Clock.Mono()
	var err error
	switch t.action.Kind {
	case arbiter.ActStatus:
		err = r.inspectStatus(ctx, t.action)
	case arbiter.ActLook:
		err = r.inspectLook(ctx, t.action)
	default:
		err = r.inspectPod(ctx, t.action)
	}
	if r.cfg.Observer != nil && ctx.Err() == nil {
		r.cfg.Observer.Inspected(t.action.Kind, r.cfg.Clock.Mono()-start, err)
	}
	r.mu.Lock()
	r.finished = append(r.finished, finishedTask{t, cri.TimedOut(err)})
	r.mu.Unlock()
	note.Leave(r.inspectWake)
}

// inspectStatus asks for one entity's status. Where its kind is open it is a
// container more often than not.
func (r *Relister) inspectStatus(ctx context.Context, a arbiter.Action) error {
	if a.Entity != 0 {
		seen, err := r.statusCall(ctx, a.Entity, a.ID)
		return r.submitStatus(ctx, seen, err)
	}
	container, err := r.statusCall(ctx, store.KindContainer, a.ID)
	if !container.NotFound {
		if container.Item == nil {
			container.Kind = 0 // a failure doesn't find it out
		}
		return r.submitStatus(ctx, container, err)
	}
	sandbox, err := r.statusCall(ctx, store.KindSandbox, a.ID)
	switch {
	case sandbox.NotFound: // both answers together say it
		r.end(sandbox.Call)
		sandbox.Kind, sandbox.Call.Sent = 0, container.Call.Sent
	case sandbox.Item == nil:
		r.end(container.Call)
		sandbox.Kind = 0
	default:
		r.end(container.Call)
	}
	return r.submitStatus(ctx, sandbox, err)
}

// statusCall makes one status call.
func (r *Relister) statusCall(ctx context.Context, kind store.Kind, id string) (*arbiter.StatusSeen, error) {
	seen := &arbiter.StatusSeen{Kind: kind, ID: id}
	seen.Call.Sent = r.cfg.Calls.Begin(timestamps.FromInspect)
	item, err := bounded(ctx, r, func(ctx context.Context) (*arbiter.Item, error) {
		if kind == store.KindSandbox {
			s, err := r.cfg.Runtime.PodSandboxStatus(ctx, id)
			if err != nil {
				return nil, err
			}
			return cri.SandboxStatus(s), nil
		}
		c, err := r.cfg.Runtime.ContainerStatus(ctx, id)
		if err != nil {
			return nil, err
		}
		return cri.ContainerStatus(c), nil
	})
	seen.Call.Answered = r.cfg.Calls.Answered(timestamps.FromInspect)
	if err == nil && (item == nil || item.ID != id) {
		err = fmt.Errorf("%v %.80q: %w", kind, id, errWrongStatus)
	}
	switch {
	case err == nil:
		seen.Item = item
	case cri.NotFound(err):
		seen.NotFound = true
	default:
		seen.Err = err.Error()
	}
	return seen, err
}

// submitStatus hands over what came of a status call, unless the call failed
// because Run ends.
func (r *Relister) submitStatus(ctx context.Context, seen *arbiter.StatusSeen, err error) error {
	if ctx.Err() != nil {
		r.end(seen.Call)
		return err
	}
	r.cfg.Sink.Submit(seen)
	return err
}

// inspectLook lists one sandbox and what names it.
func (r *Relister) inspectLook(ctx context.Context, a arbiter.Action) error {
	l, err := r.list(ctx, &runtimeapi.PodSandboxFilter{Id: a.ID}, &runtimeapi.ContainerFilter{PodSandboxId: a.ID})
	return r.submitScoped(ctx, arbiter.Scope{Sandbox: a.ID}, l, err)
}

// inspectPod lists what carries the pod's UID.
func (r *Relister) inspectPod(ctx context.Context, a arbiter.Action) error {
	byUID := map[string]string{cri.LabelPodUID: a.ID}
	l, err := r.list(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: byUID}, &runtimeapi.ContainerFilter{LabelSelector: byUID})
	return r.submitScoped(ctx, arbiter.Scope{PodUID: a.ID}, l, err)
}

// submitScoped hands over what came of a list of part, unless Run ends.
func (r *Relister) submitScoped(ctx context.Context, scope arbiter.Scope, l listing, err error) error {
	if ctx.Err() != nil {
		r.drop(l)
		return err
	}
	if l.dropped > 0 {
		r.mu.Lock()
		r.status.Malformed += uint64(l.dropped)
		r.mu.Unlock()
	}
	r.submitList(scope, l, err)
	return err
}
