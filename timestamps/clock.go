package timestamps

import "time"

// Clock is the one way by which any part of plegd reads time or waits. Tests
// replace its parts one by one: testing/synctest moves wall and monotonic time
// together, so a clock step can only be injected here (rule T3).
type Clock struct {
	Wall     func() time.Time                    // the wall clock
	Mono     func() time.Duration                // monotonic time since an arbitrary start
	NewTimer func(d time.Duration) (timer Timer) // a timer that fires once after d of monotonic time
}

// Timer fires once on C unless stopped before. Stop may be called at any time
// and more than once.
type Timer struct {
	C    <-chan time.Time
	Stop func() bool
}

// Stamp takes the next tick and reads both clocks.
func (c Clock) Stamp(n *Counter, source Provenance) Stamp {
	return Stamp{Tick: n.Next(), Wall: c.Wall().UnixNano(), Mono: int64(c.Mono()), Source: source}
}
