package simruntime

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Event is one message of GetContainerEvents.
type Event = runtimeapi.ContainerEventResponse

// emit makes an event of a change, as containerd does: the statuses are read
// first and the time is taken last, so created_at is later than what the
// payload knows. The payload holds the containers of that one sandbox, or as
// the profile says. A sandbox that can't be found leaves its status nil
// (kubernetes#114371), or the event is dropped. The caller holds mu.
func (r *Runtime) emit(typ runtimeapi.ContainerEventType, id, sandboxID string) {
	if !r.up || r.profile.silent() {
		return
	}
	ev := &Event{ContainerId: id, ContainerEventType: typ}
	sb, err := r.sandboxes.find("sandbox", sandboxID)
	switch {
	case err == nil:
		ev.PodSandboxStatus = sb.status
	case r.profile.NoBlindEvents:
		return
	}
	if r.profile.PodWideEvents {
		ev.ContainersStatuses = r.podStatuses(sb.status.GetMetadata().GetUid())
	} else {
		ev.ContainersStatuses = r.memberStatuses(sandboxID)
	}
	ev.CreatedAt = r.now()
	if ticket := r.lane.send(ev, r.rules.match(Op{Method: MethodEvent, ID: id, Event: ev})); ticket > 0 {
		r.ticket = ticket
	}
}

// memberStatuses returns the statuses of a sandbox's containers.
func (r *Runtime) memberStatuses(sandboxID string) (all []*runtimeapi.ContainerStatus) {
	for _, c := range r.members[sandboxID] {
		all = append(all, c.status)
	}
	return all
}

// podStatuses returns the statuses of a pod's containers, found by their label.
func (r *Runtime) podStatuses(uid string) (all []*runtimeapi.ContainerStatus) {
	for c := range r.containers.all {
		if label, ok := c.status.Labels[LabelPodUID]; ok && label == uid {
			all = append(all, c.status)
		}
	}
	return all
}

// InjectEvent sends an event as it is: nil parts, types outside the enum, ids
// of nothing, old times. No rule is applied to it. While the runtime is down it
// is dropped.
func (r *Runtime) InjectEvent(ev *Event) {
	_ = r.change(true, func() error {
		if r.up {
			r.ticket = r.hub.publish(ev)
		}
		return nil
	})
}

// EndStreams ends every open event stream after what it has buffered, with an
// error code or, for codes.OK, with a plain end of file. Events that follow
// wait for the next subscriber.
func (r *Runtime) EndStreams(code codes.Code) {
	err := errEndOK
	if code != codes.OK {
		err = status.Error(code, "stream ended by the test")
	}
	r.hub.endAll(err)
}

// EventStats counts what became of the events.
type EventStats struct {
	Sent        uint64 // given to the event queue, copies made by rules included
	Replayed    uint64 // waited for a subscriber and then went to one
	Expired     uint64 // waited longer than ReplayWindow
	Waiting     int    // wait for a subscriber now
	Unheard     uint64 // thrown away since nobody listened any more
	Overflowed  uint64 // lost to one subscriber whose buffer was full, or to all where there is one queue
	DeadBuffer  uint64 // lost in the buffer of a subscriber that had gone
	Dropped     uint64 // by rules
	Held        int    // held back by rules now: delayed, reordered or hanging
	Subscribers int    // open streams, those whose client has gone unnoticed included
}

// EventStats returns the counters as they are now.
func (r *Runtime) EventStats() EventStats {
	st := r.hub.snapshot()
	st.Dropped, st.Held = r.lane.snapshot()
	return st
}

// WaitSubscribers waits until n event streams are open (exactly n, so that it
// can also wait for their end).
func (r *Runtime) WaitSubscribers(ctx context.Context, n int) error {
	return r.hub.waitFor(ctx, func(h *hub) bool { return len(h.subs) == n })
}

// getContainerEvents is the body of the CRI call. Like containerd it doesn't
// look at its client between events: one that has gone is noticed when the next
// send fails, and that event and what is buffered behind it are lost.
func (r *Runtime) getContainerEvents(stop <-chan struct{}, send func(*Event) error) error {
	sub, err := r.hub.subscribe(stop)
	if err != nil {
		return err
	}
	defer r.hub.unsubscribe(sub)
	for {
		ev, err := r.hub.receive(stop, sub)
		if errors.Is(err, errStopping) && r.endsCleanly() {
			return errEndOK
		}
		if err != nil {
			return err
		}
		if err := send(ev); err != nil {
			return err
		}
	}
}

// expired says whether an event that waits since then is too old to replay.
func (h *hub) expired(since time.Time) bool { return time.Since(since) >= h.window }
