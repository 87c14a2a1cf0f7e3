package simruntime

import (
	"sync"
	"time"
)

// StepClock is a wall clock that can be set, for Config.Wall. The zero value
// shows the time. It may be used from any goroutine.
type StepClock struct {
	mu     sync.Mutex
	offset time.Duration
}

// Now returns the time that the clock shows, without a monotonic part.
func (c *StepClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Round(0).Add(c.offset)
}

// Step moves the clock, back if d is negative.
func (c *StepClock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
}

// Set makes the clock show t now; it goes on from there.
func (c *StepClock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = time.Until(t.Round(0))
}
