package client

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/plegd/plegd/internal/retry"
)

// WaitFor returns once met reports true for the pods that are chosen, by key: those
// that are there now, or after an event of them. It is called after each event, in
// their order, so it sees each state that they pass through, however short.
// Without a pod that is chosen it is given none, which is how to wait for one to go.
// The error is ctx's, met's, or one that trying again would not change. If ctx ends
// while it isn't known what there is, it is an UnmetError that wraps ctx's.
//
// What an earlier run of the agent knew of the pods may have changed since, so it
// doesn't count: they are waited for until the agent has seen them, and it is asked
// to list the runtime for that. Then met is called for the events until then, as far as
// they are kept, and last for what there is: but for those after which something was
// there of which it turned out that it was known wrongly.
//
// The pods are as they were at the beginning and as events have told since. What events
// don't tell is left out where they have changed something: Reported, Message, Error,
// all addresses but the first, and of a new sandbox Attempt and HostNetwork. Ask Pod
// for the rest. They are met's until it returns.
func (c *Client) WaitFor(ctx context.Context, filter *Filter, met func(pods []*Pod) (bool, error)) error {
	if err := choosesPods(filter); err != nil {
		return err
	}
	s := waiting{filter: filter, met: met}
	w := c.newWatcher(WatchOptions{From: From{Snapshot: true}, Filter: ofPods(filter), StartOver: true}, s.take)
	delays := retry.Delays(retryFirst, retryMost)
	for {
		err := w.run(ctx)
		if err == nil && s.seen != nil {
			err = s.catchUp(ctx, w)
		}
		switch {
		case err != nil:
			return errors.Join(s.err, unmet(err, cmp.Or(w.why, s.why)))
		case s.ended:
			return s.err
		case s.restored == nil:
			continue // from where it has caught up
		}
		s.why = cmp.Or(s.why, errRestored) // the list may hang
		if _, err := c.Relist(ctx, true); err == nil {
			s.why = errRestored
		} else if errors.Is(err, ErrUnavailable) {
			s.why = err
		} else {
			return unmet(err, s.why)
		}
		if err := retry.Sleep(ctx, delays.NextBackOff()); err != nil {
			return unmet(err, s.why)
		}
		w.from = From{Snapshot: true}
	}
}

// UnmetError says that a wait has ended while it wasn't known what there is.
type UnmetError struct {
	Err error // why it has ended: the context's
	Why error // why it isn't known; wraps ErrUnavailable
}

// Error says both.
func (e *UnmetError) Error() string { return e.Err.Error() + ": " + e.Why.Error() }

// Unwrap returns both.
func (e *UnmetError) Unwrap() []error { return []error{e.Err, e.Why} }

// unmet returns the error of a wait: why it isn't known what there is may be nil.
func unmet(err, why error) error {
	if why == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	return &UnmetError{Err: err, Why: why}
}

// present are pods by their keys, kept up to date by events.
type present map[string]*Pod

// newPresent makes it of a snapshot, which it takes over.
func newPresent(pods []*Pod) present {
	p := present{}
	for _, pod := range pods {
		p[pod.Key] = pod
	}
	return p
}

// list returns those that are chosen, by key.
func (p present) list(filter *Filter) []*Pod {
	pods := []*Pod{}
	for _, key := range slices.Sorted(maps.Keys(p)) {
		if chosen(filter, p[key]) {
			pods = append(pods, p[key])
		}
	}
	return pods
}

// take takes an event of a pod in.
func (p present) take(ev *Event) {
	pod := p.of(ev)
	if ev.Container == nil {
		takeSandbox(pod, ev)
	} else {
		takeContainer(pod, ev)
	}
	if len(pod.Sandboxes)+len(pod.Containers) == 0 {
		delete(p, pod.Key)
	}
}

// of returns the pod of an event, which may be new.
func (p present) of(ev *Event) *Pod {
	pod := p[ev.PodKey]
	if pod == nil {
		of := ev.GetPod()
		pod = &Pod{Key: ev.PodKey, Uid: of.GetUid(), Namespace: of.GetNamespace(), Name: of.GetName(), Labels: of.GetLabels()}
		p[pod.Key] = pod
	}
	// Its UID was learnt late: it was there under another key.
	if other := p[keyOfSandbox+ev.SandboxId]; other != nil && other != pod {
		pod.Sandboxes, pod.Containers = append(pod.Sandboxes, other.Sandboxes...), append(pod.Containers, other.Containers...)
		if len(pod.Ips) == 0 {
			pod.Ips = other.Ips
		}
		delete(p, other.Key)
	}
	pod.Ips, pod.Position = withAddress(pod.Ips, ev), ev.Position
	return pod
}

// withAddress returns the addresses of a pod as of an event of it, which has the first.
func withAddress(ips []string, ev *Event) []string {
	if ip := ev.GetPod().GetIp(); ip != "" && (len(ips) == 0 || ips[0] != ip) {
		return []string{ip}
	}
	return ips
}

// eventStates are the states that events tell of by their types.
var eventStates = map[string]string{
	"SandboxCreated": "created", "SandboxReady": "ready", "SandboxNotReady": "notready",
	"ContainerCreated": "created", "ContainerStarted": "running", "ContainerDied": "exited",
}

// stateOf returns the state into which an event has something go, "" if it stays in
// its state.
func stateOf(ev *Event) string {
	if ev.Change == "regressed" {
		return ev.State
	}
	return eventStates[ev.Type]
}

func takeSandbox(pod *Pod, ev *Event) {
	i := slices.IndexFunc(pod.Sandboxes, func(s *Sandbox) bool { return s.Id == ev.SandboxId })
	state := stateOf(ev)
	switch {
	case ev.Type == "SandboxRemoved":
		pod.Sandboxes = slices.DeleteFunc(pod.Sandboxes, func(s *Sandbox) bool { return s.Id == ev.SandboxId })
		return
	case i < 0 && state == "":
		return
	case i < 0:
		i, pod.Sandboxes = 0, slices.Insert(pod.Sandboxes, 0, &Sandbox{Id: ev.SandboxId})
	}
	s := pod.Sandboxes[i]
	if ev.Type == "SandboxCreated" {
		s.CreatedAt = ev.OccurredAt
	}
	if state != "" {
		s.State, s.Incarnation, s.Reported, s.Error = state, ev.Incarnation, "", ""
	}
	if state == "ready" {
		pod.Sandboxes = slices.Insert(slices.Delete(pod.Sandboxes, i, i+1), 0, s)
	}
	// The current one comes first. Who is heard of late isn't it where another one is ready.
	slices.SortStableFunc(pod.Sandboxes, func(a, b *Sandbox) int {
		switch {
		case isReady(a) == isReady(b):
			return 0
		case isReady(a):
			return -1
		}
		return 1
	})
	if pod.Sandboxes[0] == s {
		s.Ips = withAddress(s.Ips, ev)
	}
}

func isReady(s *Sandbox) bool { return s.State == "ready" }

func takeContainer(pod *Pod, ev *Event) {
	of := ev.Container
	i := slices.IndexFunc(pod.Containers, func(c *Container) bool { return c.Id == of.Id })
	state := stateOf(ev)
	switch {
	case ev.Type == "ContainerRemoved":
		pod.Containers = slices.DeleteFunc(pod.Containers, func(c *Container) bool { return c.Id == of.Id })
	case i >= 0 && state == "":
		if ev.ExitCode != nil { // it became known late
			pod.Containers[i].ExitCode, pod.Containers[i].Reason = ev.ExitCode, ev.Reason
		}
	case state != "":
		c := &Container{Id: of.Id, SandboxId: ev.SandboxId, Name: of.Name, Attempt: of.Attempt, Image: of.Image}
		if i >= 0 {
			c.CreatedAt, c.StartedAt = pod.Containers[i].CreatedAt, pod.Containers[i].StartedAt
			pod.Containers = slices.Delete(pod.Containers, i, i+1)
		}
		c.State, c.Incarnation, c.ExitCode, c.Reason = state, ev.Incarnation, ev.ExitCode, ev.Reason
		switch ev.Type {
		case "ContainerCreated":
			c.CreatedAt = ev.OccurredAt
		case "ContainerStarted":
			c.StartedAt = ev.OccurredAt
		case "ContainerDied":
			c.FinishedAt = ev.OccurredAt
		}
		pod.Containers = append(pod.Containers, c)
		slices.SortStableFunc(pod.Containers, func(a, b *Container) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Attempt, b.Attempt))
		})
	}
}
