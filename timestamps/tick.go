package timestamps

import (
	"math"
	"sync/atomic"
)

// Tick is one step of the agent's logical clock. Zero means "unknown, before
// everything".
type Tick uint64

// Counter hands out ticks. It is safe for concurrent use; the zero Counter
// starts at tick 1.
type Counter struct{ last atomic.Uint64 }

// NewCounter returns a counter whose first tick is above the one given, which
// is the highest tick that was ever committed.
func NewCounter(above Tick) *Counter {
	c := new(Counter)
	c.last.Store(uint64(above))
	return c
}

// Next returns a tick above every tick returned before.
func (c *Counter) Next() Tick { return Tick(c.last.Add(1)) }

// Last returns the highest tick handed out so far.
func (c *Counter) Last() Tick { return Tick(c.last.Load()) }

// Span is the stretch of ticks within which an observation was true at some
// moment: after From and no later than To. A call has the tick of its sending
// in From and that of its answer in To. An event has From zero, because a
// runtime may deliver it minutes late (rule T2), and its receipt in To.
type Span struct {
	From Tick `cbor:"1,keyasint,omitempty"`
	To   Tick `cbor:"2,keyasint,omitempty"`
}

// Call returns the span of a call sent and answered at these ticks.
func Call(sent, answered Tick) Span { return Span{From: sent, To: answered} }

// Receipt returns the span of an event received at this tick.
func Receipt(received Tick) Span { return Span{To: received} }

// IsZero reports whether nothing was observed.
func (s Span) IsZero() bool { return s == Span{} }

// After reports whether s is certainly later than o: a call sent after o was
// received or answered. An event is never certainly later than anything.
func (s Span) After(o Span) bool { return s.From > o.To }

// Before reports whether s is certainly earlier than o.
func (s Span) Before(o Span) bool { return o.After(s) }

// Concurrent reports whether neither span is certainly later.
func (s Span) Concurrent(o Span) bool { return !s.After(o) && !s.Before(o) }

// Provenance says where an observation came from.
type Provenance uint8

// The sources of observations.
const (
	FromUnknown Provenance = iota
	FromStream             // a GetContainerEvents message
	FromRelist             // a list, of everything or of one pod
	FromInspect            // a status call
)

// String returns the word used in events and metrics.
func (p Provenance) String() string {
	switch p {
	case FromStream:
		return "stream"
	case FromRelist:
		return "relist"
	case FromInspect:
		return "inspect"
	default:
		return "unknown"
	}
}

// Stamp is one moment of the agent: a send, an answer or a receipt.
type Stamp struct {
	Tick   Tick       // place in the logical order
	Wall   int64      // ns since the Unix epoch by the agent's wall clock
	Mono   int64      // ns by the agent's monotonic clock, comparable within one process only
	Source Provenance // what the stamp belongs to
}

// Since returns the monotonic time in ns from an earlier stamp to s, never
// negative.
func (s Stamp) Since(earlier Stamp) int64 { return max(0, subClamped(s.Mono, earlier.Mono)) }

// AddClamped returns a+b for nanosecond times and saturates instead of
// wrapping round, since runtimes report times near the ends of int64
// (containerd sends Go's zero time as -6795364578871345152).
func AddClamped(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// subClamped returns a-b and saturates instead of wrapping round.
func subClamped(a, b int64) int64 {
	if b == math.MinInt64 { // has no negative
		return AddClamped(AddClamped(a, math.MaxInt64), 1)
	}
	return AddClamped(a, -b)
}
