package arbiter

import (
	"sync"

	"github.com/plegd/plegd/timestamps"
)

// Sink takes observations. The loop is one; tests have their own. Both methods
// may be called by any goroutine and never block.
type Sink interface {
	// Submit queues an input that must not be lost: the answer to a call, a
	// change of the stream. Their number is bounded by the calls in flight.
	Submit(Input)
	// SubmitEvent queues an event, or reports false when the queue for events
	// is full. The caller then counts it and submits a StreamOverflow.
	SubmitEvent(*EventSeen) bool
}

// Calls stamps calls and knows the oldest one still in flight, which the core
// needs before it forgets a tombstone (rule O6). A call is in flight until the
// loop has applied the input that carries it. Safe for concurrent use.
type Calls struct {
	clock   timestamps.Clock
	counter *timestamps.Counter

	mu   sync.Mutex
	open map[timestamps.Tick]struct{}
}

// NewCalls returns a tracker that takes its ticks from n.
func NewCalls(clock timestamps.Clock, n *timestamps.Counter) *Calls {
	return &Calls{clock: clock, counter: n, open: map[timestamps.Tick]struct{}{}}
}

// Begin stamps the sending of a call and counts it as in flight. Take the
// stamp right before the call is sent.
func (c *Calls) Begin(source timestamps.Provenance) timestamps.Stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The tick is taken under the lock, so that Oldest never misses a call
	// whose tick is already below the one that Oldest's caller holds.
	s := c.clock.Stamp(c.counter, source)
	c.open[s.Tick] = struct{}{}
	return s
}

// Answered stamps an answer or a receipt.
func (c *Calls) Answered(source timestamps.Provenance) timestamps.Stamp {
	return c.clock.Stamp(c.counter, source)
}

// End says that the call sent at this tick is over and applied. The loop calls
// it for inputs that carry the call; sources call it for calls whose outcome
// they don't submit with its stamps. Ending twice is harmless.
func (c *Calls) End(sent timestamps.Tick) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, sent)
}

// Oldest returns the tick of the oldest call in flight, 0 when there is none.
func (c *Calls) Oldest() timestamps.Tick {
	c.mu.Lock()
	defer c.mu.Unlock()
	var oldest timestamps.Tick
	for t := range c.open {
		if oldest == 0 || t < oldest {
			oldest = t
		}
	}
	return oldest
}

// InFlight returns how many calls are in flight.
func (c *Calls) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}
