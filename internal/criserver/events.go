package criserver

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store"
)

// healthPoll is how often an open stream looks whether what it tells can be relied on.
const healthPoll = time.Second

// GetContainerEvents tells the events from now on, with statuses from the cache.
// There is nothing to read through to: so it ends with UNAVAILABLE, whatever the
// policy, while the cache can't be relied on.
func (s *Server) GetContainerEvents(_ *runtimeapi.GetEventsRequest, out grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	if _, d := s.source(); d != "" {
		return d.err()
	}
	r, err := s.hub.join(out.Context())
	if err != nil {
		return err
	}
	defer s.hub.leave(r)
	// Whoever waits for the stream to be open can list then, and misses nothing.
	if err := out.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	// Sending blocks while the client doesn't read; it ends with the stream,
	// which ends when this function returns.
	sent := make(chan error, 1)
	s.tasks.Go(func() { sent <- r.send(out) })
	health := time.NewTicker(healthPoll)
	defer health.Stop()
	for {
		select {
		case <-r.cut:
			return r.why
		case err := <-sent:
			return err
		case <-out.Context().Done():
			return status.FromContextError(out.Context().Err()).Err()
		case <-health.C:
			if _, d := s.source(); d != "" {
				return d.err()
			}
		}
	}
}

// send sends until the stream ends.
func (r *reader) send(out grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	for {
		select {
		case <-r.cut:
			return r.why
		case <-out.Context().Done():
			return status.FromContextError(out.Context().Err()).Err()
		case ev := <-r.events:
			if err := out.Send(ev); err != nil {
				return err
			}
		}
	}
}

// tell makes the CRI's event of one of the journal, nil where the CRI has none.
// Its statuses are those of the cache at this moment, so never older than the
// event; one that the cache doesn't have in full is left out, as containerd
// leaves out what it can't look up.
func tell(src Source, ev *pleg.Event) *runtimeapi.ContainerEventResponse {
	kind, ok := eventType(ev)
	if !ok {
		return nil
	}
	told := &runtimeapi.ContainerEventResponse{ContainerId: ev.EntityID(), ContainerEventType: kind, CreatedAt: ev.ObservedAt}
	sandboxes, containers := src.EntitiesOf(ev.PodKey())
	for i := range sandboxes {
		if e := &sandboxes[i]; e.ID == ev.SandboxID && doubtListed(e) == "" {
			told.PodSandboxStatus = sandboxStatus(e)
		}
	}
	for i := range containers {
		e := &containers[i]
		if e.Sandbox != ev.SandboxID || doubtListed(e) != "" {
			continue
		}
		if st := containerStatus(e); st != nil {
			told.ContainersStatuses = append(told.ContainersStatuses, st)
		}
	}
	return told
}

// eventType returns the type that the CRI has for an event. What was amended or
// taken back is told as the state that the entity is in now: the payload has
// what is new.
func eventType(ev *pleg.Event) (t runtimeapi.ContainerEventType, ok bool) {
	switch ev.Type {
	case store.SandboxCreated, store.ContainerCreated:
		return runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, true
	case store.SandboxReady, store.ContainerStarted:
		return runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, true
	case store.SandboxNotReady, store.ContainerDied:
		return runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, true
	case store.SandboxRemoved, store.ContainerRemoved:
		return runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, true
	case store.SandboxChanged, store.ContainerChanged:
		kind := store.KindContainer
		if ev.Type == store.SandboxChanged {
			kind = store.KindSandbox
		}
		for state, t := range map[store.State]runtimeapi.ContainerEventType{
			store.StateCreated: runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT,
			store.StateUp:      runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
			store.StateDown:    runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
		} {
			if ev.State == state.Name(kind) {
				return t, true
			}
		}
	}
	return 0, false // a skip of numbers; unknown; an amended tombstone
}
