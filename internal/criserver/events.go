package criserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/retry"
	"github.com/plegd/plegd/internal/watch"
	"github.com/plegd/plegd/store"
)

const (
	// maxReaders are the event streams at a time.
	maxReaders = 512
	// maxBehind is how many events a client may be behind. A pod that goes away
	// makes some ten, and all of a node's pods may.
	maxBehind = 1024
	// healthPoll is how often an open stream looks whether what it tells can be
	// relied on.
	healthPoll = time.Second
	// startWait is how long a new stream waits for the hub to read events, which
	// it does within listedPoll of there being a source.
	startWait = 2 * time.Second
	// followFirst and followMost space the tries to read events that can't be read.
	followFirst, followMost = time.Second, 30 * time.Second
)

var (
	errStarting = unavailable("it doesn't read events yet; try again")
	errStopping = unavailable(watch.ErrStopping.Error())
	errBehind   = status.Errorf(codes.ResourceExhausted, "plegd: this client is more than %d events behind; list again and subscribe anew", maxBehind)
	errTooMany  = status.Errorf(codes.ResourceExhausted, "plegd: %d event streams are open, more are not allowed", maxReaders)
	errMissed   = unavailable("events were missed; list again and subscribe anew")
)

// hub hands each event to all readers. It never waits for one. Nobody may join
// while it reads no events itself: what came in between would be lost unnoticed.
type hub struct {
	room int // how many events a reader may be behind

	mu      sync.Mutex
	readers map[*reader]bool
	closed  error         // why none may join; nil while events are read
	changed chan struct{} // closed when that changes, and then another one
}

// reader is one event stream.
type reader struct {
	events chan *runtimeapi.ContainerEventResponse
	cut    chan struct{} // closed when the stream is to end
	why    error         // set before cut is closed
}

func newHub() *hub {
	return &hub{room: maxBehind, readers: map[*reader]bool{}, closed: errStarting, changed: make(chan struct{})}
}

// join lets a reader in. If no events are read yet it waits until they are, for
// startWait at most.
func (h *hub) join(ctx context.Context) (*reader, error) {
	timeout := time.NewTimer(startWait)
	defer timeout.Stop()
	for {
		r, changed, err := h.tryJoin()
		if err == nil || !errors.Is(err, errStarting) {
			return r, err
		}
		select {
		case <-changed:
		case <-timeout.C:
			return nil, err
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// tryJoin is join without waiting; changed is closed when it is worth another try.
func (h *hub) tryJoin() (r *reader, changed <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed != nil:
		return nil, h.changed, h.closed
	case len(h.readers) >= maxReaders:
		return nil, h.changed, errTooMany
	}
	r = &reader{events: make(chan *runtimeapi.ContainerEventResponse, h.room), cut: make(chan struct{})}
	h.readers[r] = true
	return r, h.changed, nil
}

func (h *hub) leave(r *reader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.readers, r)
}

// reading is how many read.
func (h *hub) reading() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.readers)
}

// publish hands an event to all readers, and cuts those that have no room.
func (h *hub) publish(ev *runtimeapi.ContainerEventResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.readers {
		select {
		case r.events <- ev:
		default:
			h.end(r, errBehind)
		}
	}
}

// open lets readers join from now on: events are read.
func (h *hub) open() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.become(nil)
}

// close ends all streams, for one reason, and lets none join, for another.
func (h *hub) close(cut, later error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.readers {
		h.end(r, cut)
	}
	h.become(later)
}

// become says why none may join; the caller holds the lock. The end is for good.
func (h *hub) become(closed error) {
	if errors.Is(h.closed, errStopping) {
		return
	}
	h.closed = closed
	close(h.changed)
	h.changed = make(chan struct{})
}

// end cuts one reader; the caller holds the lock.
func (h *hub) end(r *reader, why error) {
	r.why = why
	close(r.cut)
	delete(h.readers, r)
}

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

// follow reads the events of the generator, once there is one, until ctx ends. An
// error of reading them is this endpoint's trouble alone: it tries again.
func (s *Server) follow(ctx context.Context) error {
	delays, troubled := retry.Delays(followFirst, followMost), false
	read := func() {
		if troubled {
			s.cfg.Logger.Info("events are read again for the CRI endpoint", "socket", s.cfg.Socket)
		}
		troubled = false
		delays.Reset()
	}
	for ctx.Err() == nil {
		src, _, err := s.cfg.Source()
		if err != nil {
			wait(ctx, listedPoll, nil)
			continue
		}
		err = s.followFrom(ctx, src, read)
		switch {
		case errors.Is(err, pleg.ErrStopped):
			s.hub.close(errStopping, errStopping) // the rest of the agent is about to end too
			return nil
		case ctx.Err() != nil: // Run sees to the streams
		case errors.Is(err, pleg.ErrExpired):
			s.hub.close(errMissed, errStarting)
		default:
			s.hub.close(errMissed, errStarting)
			if !troubled {
				s.cfg.Logger.Error("events can't be read for the CRI endpoint: its event streams end, and none opens", "socket", s.cfg.Socket, "error", err)
			}
			troubled = true
			wait(ctx, retry.Jittered(delays.NextBackOff(), rand.Float64()), nil)
		}
	}
	return nil
}

// followFrom reads the events from now on. It calls read for each. Telling one to
// all readers is a turn, so that many of them leave the processors to the writer:
// what waits meanwhile waits in the journal, and they don't fall behind for it.
func (s *Server) followFrom(ctx context.Context, src Source, read func()) error {
	sub, err := src.Subscribe(nil)
	if err != nil {
		return err
	}
	s.hub.open()
	s.shelf.tell() // whatever came before
	for {
		ev, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		read()
		switch ev.Type {
		case store.SandboxCreated, store.ContainerCreated, store.SandboxRemoved, store.ContainerRemoved:
			s.shelf.tell()
		}
		readers := s.hub.reading()
		if readers == 0 {
			continue
		}
		if told := tell(src, ev); told != nil {
			s.hub.publish(told)
			if err := s.cfg.Turns.Rest(ctx, src, readers); err != nil {
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
