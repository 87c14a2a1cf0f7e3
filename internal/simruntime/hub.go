package simruntime

import (
	"context"
	"slices"
	"sync"
	"time"
)

// hub is the runtime's event queue: it broadcasts to every subscriber, keeps
// what nobody listens to for a while, and either drops or blocks when a
// subscriber is slow. It has no goroutine of its own.
type hub struct {
	limit  int
	stall  bool
	window time.Duration

	mu      sync.Mutex
	subs    []*subscriber
	waiting []waitingEvent // while there is no subscriber
	pending []*Event       // with stall: not yet given to the subscribers
	sent    uint64         // events ever published
	taken   uint64         // events ever taken from pending
	stats   EventStats
	changed chan struct{} // closed and replaced when any of the above changed
}

type waitingEvent struct {
	ev    *Event
	since time.Time
}

type subscriber struct {
	buf   []*Event
	ready chan struct{} // holds one token while there may be something to read
	end   error         // set: ends after what is buffered
}

func newHub(cfg Config) *hub {
	return &hub{
		limit: cfg.SubscriberBuffer, stall: cfg.StallProducers, window: cfg.ReplayWindow,
		changed: make(chan struct{}),
	}
}

// publish takes an event and returns its ticket for admit.
func (h *hub) publish(ev *Event) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent++
	h.stats.Sent++
	h.pending = append(h.pending, ev)
	h.pump()
	return h.sent
}

// pump moves pending events on as far as it goes.
func (h *hub) pump() {
	for len(h.pending) > 0 && !h.stalled() {
		ev := h.pending[0]
		h.pending = h.pending[1:]
		h.taken++
		if len(h.subs) == 0 {
			h.expire()
			h.waiting = append(h.waiting, waitingEvent{ev, time.Now()})
			continue
		}
		// A runtime whose subscribers compete (containerd#7318) would pick one
		// here.
		for _, s := range h.subs {
			if len(s.buf) >= h.limit {
				h.stats.Overflowed++
				continue
			}
			s.buf = append(s.buf, ev)
			s.wake()
		}
	}
	h.notify()
}

// stalled says whether one full subscriber holds everybody up.
func (h *hub) stalled() bool {
	return h.stall && slices.ContainsFunc(h.subs, func(s *subscriber) bool { return len(s.buf) >= h.limit })
}

// expire drops what has waited for a subscriber too long.
func (h *hub) expire() {
	n := 0
	for n < len(h.waiting) && h.expired(h.waiting[n].since) {
		n++
	}
	h.stats.Expired += uint64(n)
	h.waiting = h.waiting[n:]
}

func (h *hub) notify() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (s *subscriber) wake() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// admit blocks the producer of an event while the queue is stalled. As in
// containerd one event more than fits is taken: the queue's own goroutine holds
// it in its hand.
func (h *hub) admit(ticket uint64) {
	if !h.stall {
		return
	}
	_ = h.waitFor(context.Background(), func(h *hub) bool { return ticket <= h.taken+1 })
}

// waitFor waits until a condition on the hub holds.
func (h *hub) waitFor(ctx context.Context, met func(*hub) bool) error {
	for {
		h.mu.Lock()
		ok, changed := met(h), h.changed
		h.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// subscribe adds a subscriber and gives it what has waited for one. With stall
// it waits, as in containerd, until the queue moves.
func (h *hub) subscribe(stop <-chan struct{}) (*subscriber, error) {
	for {
		h.mu.Lock()
		if len(h.pending) == 0 {
			break
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-stop:
			return nil, errStopping
		}
	}
	defer h.mu.Unlock()
	h.expire()
	s := &subscriber{ready: make(chan struct{}, 1)}
	for _, w := range h.waiting {
		s.buf = append(s.buf, w.ev)
	}
	h.stats.Replayed += uint64(len(h.waiting))
	h.waiting = nil
	h.subs = append(h.subs, s)
	s.wake()
	h.notify()
	return s, nil
}

// unsubscribe removes a subscriber; what it hasn't read is lost.
func (h *hub) unsubscribe(s *subscriber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats.DeadBuffer += uint64(len(s.buf))
	s.buf = nil
	h.subs = slices.DeleteFunc(h.subs, func(o *subscriber) bool { return o == s })
	h.pump()
}

// receive waits for a subscriber's next event.
func (h *hub) receive(stop <-chan struct{}, s *subscriber) (*Event, error) {
	for {
		h.mu.Lock()
		if len(s.buf) > 0 {
			ev := s.buf[0]
			s.buf = s.buf[1:]
			h.pump()
			h.mu.Unlock()
			return ev, nil
		}
		end := s.end
		h.mu.Unlock()
		if end != nil {
			return nil, end
		}
		select {
		case <-s.ready:
		case <-stop:
			return nil, errStopping
		}
	}
}

// endAll ends every subscription after what it has buffered.
func (h *hub) endAll(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subs {
		s.end = err
		s.wake()
	}
	h.subs = nil
	h.pump()
}

// reset forgets every event, as the end of the runtime's process does. Open
// subscriptions end by their own stop channels.
func (h *hub) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.subs {
		h.stats.DeadBuffer += uint64(len(s.buf))
		s.buf, s.end = nil, errStopping
		s.wake()
	}
	h.subs, h.waiting, h.pending = nil, nil, nil
	h.taken = h.sent
	h.notify()
}

func (h *hub) snapshot() EventStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expire()
	st := h.stats
	st.Waiting, st.Subscribers = len(h.waiting), len(h.subs)
	return st
}
