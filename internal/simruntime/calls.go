package simruntime

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// MethodGetContainerEvents is the one call that stays in flight for as long as
// a client listens.
const MethodGetContainerEvents = "GetContainerEvents"

// Call is one RPC as the runtime saw it.
type Call struct {
	Seq    uint64 // counts from 1 in the order of arrival
	Method string // without its service
	ID     string // as in Rule.ID
	Start  time.Time
	End    time.Time // zero while it is in flight
	Code   codes.Code

	// Places of start and end in the order of all starts and ends, which virtual
	// time can't tell apart.
	startOrder, endOrder uint64
}

// CallStats counts the calls of one method, or of all.
type CallStats struct {
	Started     int
	InFlight    int
	MaxInFlight int
	ByCode      map[codes.Code]int // of those that have ended
}

// callLog keeps the newest calls and exact counts of all.
type callLog struct {
	keep int

	mu       sync.Mutex
	calls    []*Call
	seq      uint64
	order    uint64
	byMethod map[string]*CallStats // "" is all but GetContainerEvents
	changed  chan struct{}         // closed and replaced at every start and end
}

func newCallLog(keep int) *callLog {
	return &callLog{keep: keep, byMethod: map[string]*CallStats{}, changed: make(chan struct{})}
}

func (l *callLog) begin(method, id string) *Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	l.order++
	c := &Call{Seq: l.seq, Method: method, ID: id, Start: time.Now(), startOrder: l.order}
	if len(l.calls) >= l.keep {
		l.calls = slices.Delete(l.calls, 0, len(l.calls)-l.keep/2)
	}
	l.calls = append(l.calls, c)
	for _, s := range l.counted(method) {
		s.Started++
		s.InFlight++
		s.MaxInFlight = max(s.MaxInFlight, s.InFlight)
	}
	l.notify()
	return c
}

func (l *callLog) end(c *Call, code codes.Code) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.order++
	c.End, c.Code, c.endOrder = time.Now(), code, l.order
	for _, s := range l.counted(c.Method) {
		s.InFlight--
		s.ByCode[code]++
	}
	l.notify()
}

func (l *callLog) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *callLog) counted(method string) []*CallStats {
	keys := []string{method}
	if method != MethodGetContainerEvents {
		keys = append(keys, "")
	}
	var out []*CallStats
	for _, k := range keys {
		if l.byMethod[k] == nil {
			l.byMethod[k] = &CallStats{ByCode: map[codes.Code]int{}}
		}
		out = append(out, l.byMethod[k])
	}
	return out
}

// Calls returns every RPC in the order of arrival, those in flight included, as
// far as Config.Keep goes back. Direct method calls are no RPCs.
func (r *Runtime) Calls() []Call {
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	out := make([]Call, len(r.calls.calls))
	for i, c := range r.calls.calls {
		out[i] = *c
	}
	return out
}

// CallStats returns the counts of one method; "" is all methods together but
// GetContainerEvents, which would be in flight for ever.
func (r *Runtime) CallStats(method string) CallStats {
	st, _ := r.calls.snapshot(method)
	return st
}

// WaitCalls waits until the counts of a method, or of all as in CallStats, meet
// a condition.
func (r *Runtime) WaitCalls(ctx context.Context, method string, met func(CallStats) bool) error {
	for {
		st, changed := r.calls.snapshot(method)
		if met(st) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *callLog) snapshot(method string) (CallStats, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.byMethod[method]
	if s == nil {
		return CallStats{ByCode: map[codes.Code]int{}}, l.changed
	}
	out := *s
	out.ByCode = maps.Clone(s.ByCode)
	return out, l.changed
}

// Methods returns the methods that were ever called, sorted.
func (r *Runtime) Methods() []string {
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	names := slices.Sorted(maps.Keys(r.calls.byMethod))
	return slices.DeleteFunc(names, func(m string) bool { return m == "" })
}

// MaxOverlap returns how many of the calls were in flight at once at most. Use
// it on a selection: those of one id, or between two moments.
func MaxOverlap(calls []Call) int {
	type edge struct {
		order uint64
		step  int
	}
	var edges []edge
	for _, c := range calls {
		edges = append(edges, edge{c.startOrder, 1})
		if c.endOrder > 0 {
			edges = append(edges, edge{c.endOrder, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Compare(a.order, b.order) })
	now, most := 0, 0
	for _, e := range edges {
		now += e.step
		most = max(most, now)
	}
	return most
}
