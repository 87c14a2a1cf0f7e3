package simruntime

import (
	"context"
	"slices"
	"sync"
	"time"
)

// hub is the runtime's event queue, of one of the kinds of Queue. It has no
// goroutine of its own.
type hub struct {
	limit         int
	stallWhenFull bool
	window        time.Duration

	mu      sync.Mutex
	kind    Queue
	heard   bool // there has been a subscriber
	turns   int  // counts the subscribers that began to wait
	subs    []*subscriber
	waiting []waitingEvent // of a broadcast while there is no subscriber
	pending []*Event       // not yet given to the subscribers
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
	turn  int           // of competing ones: when it began to wait for an event, else 0
	end   error         // set: ends after what is buffered
}

func newHub(cfg Config) *hub {
	return &hub{
		kind: cfg.Profile.Queue, limit: cfg.SubscriberBuffer, stallWhenFull: cfg.StallProducers, window: cfg.ReplayWindow,
		changed: make(chan struct{}),
	}
}

// configure makes it a queue of another kind. It must be empty.
func (h *hub) configure(kind Queue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kind = kind
}

// stalls says whether a full queue stalls whoever has an event for it.
func (h *hub) stalls() bool { return h.kind == QueueBroadcast && h.stallWhenFull }

// publish takes an event and returns its ticket for admit.
func (h *hub) publish(ev *Event) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent++
	h.stats.Sent++
	if h.kind != QueueBroadcast && len(h.pending) >= h.limit {
		h.taken++
		h.stats.Overflowed++
		return h.sent
	}
	h.pending = append(h.pending, ev)
	h.pump()
	return h.sent
}

// pump moves pending events on as far as it goes.
func (h *hub) pump() {
	for len(h.pending) > 0 && h.give(h.pending[0]) {
		h.pending = h.pending[1:]
		h.taken++
	}
	h.notify()
}

// give says whether the event that comes next is done with.
func (h *hub) give(ev *Event) bool {
	switch h.kind {
	case QueueCompete:
		return h.giveOne(ev)
	case QueueFanOut:
		return h.fanOut(ev)
	default:
		return h.broadcast(ev)
	}
}

// broadcast puts an event into every subscriber's buffer, or refuses it.
func (h *hub) broadcast(ev *Event) bool {
	full := func(s *subscriber) bool { return len(s.buf) >= h.limit }
	switch {
	case h.stalls() && slices.ContainsFunc(h.subs, full):
		return false // one holds everybody up
	case len(h.subs) == 0:
		h.expire()
		h.waiting = append(h.waiting, waitingEvent{ev, time.Now()})
	}
	for _, s := range h.subs {
		if full(s) {
			h.stats.Overflowed++
			continue
		}
		s.take(ev)
	}
	return true
}

// giveOne gives an event to whoever has waited longest, as a channel does.
func (h *hub) giveOne(ev *Event) bool {
	var next *subscriber
	for _, s := range h.subs {
		if s.turn > 0 && (next == nil || s.turn < next.turn) {
			next = s
		}
	}
	if next == nil {
		return false
	}
	next.turn = 0
	next.take(ev)
	return true
}

// fanOut gives an event to everybody once everybody has sent the one before.
func (h *hub) fanOut(ev *Event) bool {
	if len(h.subs) == 0 {
		if !h.heard {
			return false
		}
		h.stats.Unheard++
		return true
	}
	if slices.ContainsFunc(h.subs, func(s *subscriber) bool { return len(s.buf) > 0 }) {
		return false
	}
	for _, s := range h.subs {
		s.take(ev)
	}
	return true
}

func (s *subscriber) take(ev *Event) {
	s.buf = append(s.buf, ev)
	s.wake()
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
	_ = h.waitFor(context.Background(), func(h *hub) bool { return !h.stalls() || ticket <= h.taken+1 })
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
		if h.kind != QueueBroadcast || len(h.pending) == 0 {
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
	if len(h.subs) == 0 {
		h.stats.Replayed += uint64(len(h.pending))
	}
	h.subs, h.heard = append(h.subs, s), true
	s.wake()
	h.pump()
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
		if end == nil && s.turn == 0 && h.kind == QueueCompete {
			h.turns++
			s.turn = h.turns
			h.pump() // which may have one for it at once
		}
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
	h.subs, h.waiting, h.pending, h.heard = nil, nil, nil, false
	h.taken = h.sent
	h.notify()
}

func (h *hub) snapshot() EventStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expire()
	st := h.stats
	st.Waiting, st.Subscribers = len(h.waiting), len(h.subs)
	if len(h.subs) == 0 {
		st.Waiting += len(h.pending)
	}
	return st
}
