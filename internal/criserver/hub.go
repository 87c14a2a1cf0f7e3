package criserver

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/watch"
)

const (
	// maxReaders are the event streams at a time.
	maxReaders = 512
	// maxBehind is how many events a client may be behind. A pod that goes away
	// makes some ten, and all of a node's pods may.
	maxBehind = 1024
	// startWait is how long a new stream waits for the hub to read events, which
	// it does within listedPoll of there being a source.
	startWait = 2 * time.Second
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
