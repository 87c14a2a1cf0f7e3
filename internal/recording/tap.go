package recording

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/timestamps"
)

// queueBytes is how much may wait to be written, bytes: a disk that hangs for some
// seconds costs nothing.
const queueBytes = 64 << 20

// MethodEvents is the method of the event stream.
const MethodEvents = "GetContainerEvents"

// Tap sees what comes over a connection to a runtime: it is the stats handler of a
// client of it. It never waits: what the disk is too slow for is lost, and counted in
// the entry that follows. Safe for concurrent use.
type Tap struct {
	clock timestamps.Clock
	began time.Duration // by the monotonic clock
	wall  int64         // then

	mu      sync.Mutex
	entries []Entry
	bytes   int
	lost    int64
	came    chan struct{} // capacity 1: there are entries
	ended   bool
}

// NewTap returns a Tap whose entries count from now.
func NewTap(clock timestamps.Clock) *Tap {
	return &Tap{clock: clock, began: clock.Mono(), wall: clock.Wall().UnixNano(), came: make(chan struct{}, 1)}
}

// StartedAt is the wall time, Unix ns, that entries count from.
func (t *Tap) StartedAt() int64 { return t.wall }

// now returns the time that an entry would have, ns.
func (t *Tap) now() int64 { return int64(t.clock.Mono() - t.began) }

// End ends what the tap sees and returns the time of that: what comes of ending those who
// ask is no word of the runtime.
func (t *Tap) End() (at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	return t.now()
}

// take returns what has come since the last call, in order.
func (t *Tap) take() []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	entries := t.entries
	t.entries, t.bytes = nil, 0
	return entries
}

// add takes an entry, which is complete but for its time, and returns that.
func (t *Tap) add(e Entry, m proto.Message) (at int64) {
	if m != nil {
		if err := e.Set(m); err != nil {
			e.Code, e.Message = codes.DataLoss, err.Error() // it must not be taken for an empty one
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e.At = t.now() // under the lock, so that they are in order
	if t.ended {
		return e.At
	}
	if d := t.clock.Wall().UnixNano() - t.wall - e.At; d > wallNoise || d < -wallNoise {
		e.Wall = d
	}
	if t.bytes+len(e.Body) > queueBytes {
		t.lost++
		return e.At
	}
	e.Lost, t.lost = t.lost, 0
	t.entries, t.bytes = append(t.entries, e), t.bytes+len(e.Body)
	select {
	case t.came <- struct{}{}:
	default:
	}
	return e.At
}

// wallNoise is how far the two clocks may be apart, ns, before that is noted: they are
// read one after the other, and slewed.
const wallNoise = int64(time.Millisecond)

// call is one call, or the event stream. A stream that is called off ends beside what
// it is being told.
type call struct {
	method string

	mu     sync.Mutex
	about  string
	sent   int64
	answer proto.Message
}

type callKey struct{}

// TagRPC implements [stats.Handler].
func (t *Tap) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, callKey{}, &call{method: info.FullMethodName[strings.LastIndexByte(info.FullMethodName, '/')+1:], sent: t.now()})
}

// HandleRPC implements [stats.Handler].
func (t *Tap) HandleRPC(ctx context.Context, s stats.RPCStats) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s := s.(type) {
	case *stats.OutPayload:
		c.about = About(s.Payload)
		asked := Entry{Kind: KindAsked, Method: Unary(c.method), About: c.about}
		if c.method == MethodEvents {
			asked = Entry{Kind: KindOpened, Method: c.method}
		}
		c.sent = t.add(asked, nil)
	case *stats.InPayload:
		if ev := cri.EventOf(s.Payload); ev != nil {
			t.add(Entry{Kind: KindEvent, Method: c.method}, ev)
		} else if err := cri.EventError(s.Payload); err != nil {
			t.add(Entry{Kind: KindEvent, Method: c.method, Code: codes.DataLoss, Message: err.Error()}, nil)
		} else if m, ok := s.Payload.(proto.Message); ok {
			c.take(m)
		}
	case *stats.End:
		e := Entry{Kind: KindAnswer, Method: Unary(c.method), About: c.about, Sent: c.sent}
		if c.method == MethodEvents {
			e = Entry{Kind: KindClosed, Method: c.method}
		}
		if s.Error != nil {
			st := status.Convert(s.Error)
			e.Code, e.Message = st.Code(), st.Message()
			if st.Code() == codes.Unimplemented {
				e.Method = c.method // the list itself is asked for in another way next
			}
			t.add(e, nil)
			return
		}
		t.add(e, c.answer)
	}
}

// TagConn implements [stats.Handler].
func (t *Tap) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (t *Tap) HandleConn(_ context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		t.add(Entry{Kind: KindConnected}, nil)
	case *stats.ConnEnd:
		t.add(Entry{Kind: KindDisconnected}, nil)
	}
}

// The streaming lists, and the lists that they are kept as.
var unaries = map[string]string{"StreamPodSandboxes": "ListPodSandbox", "StreamContainers": "ListContainers"}

// Unary returns the method of which a method is the streaming form, else itself.
func Unary(method string) string { return cmp.Or(unaries[method], method) }

// take takes an answer, or a part of one. Lists are put in order; the answer itself is
// somebody else's.
func (c *call) take(m proto.Message) {
	switch m := m.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		c.answer = &runtimeapi.ListPodSandboxResponse{Items: sandboxesInOrder(m.Items)}
	case *runtimeapi.ListContainersResponse:
		c.answer = &runtimeapi.ListContainersResponse{Containers: containersInOrder(m.Containers)}
	case *runtimeapi.StreamPodSandboxesResponse:
		all, _ := c.answer.(*runtimeapi.ListPodSandboxResponse)
		c.answer = &runtimeapi.ListPodSandboxResponse{Items: sandboxesInOrder(append(m.PodSandboxes[:len(m.PodSandboxes):len(m.PodSandboxes)], all.GetItems()...))}
	case *runtimeapi.StreamContainersResponse:
		all, _ := c.answer.(*runtimeapi.ListContainersResponse)
		c.answer = &runtimeapi.ListContainersResponse{Containers: containersInOrder(append(m.Containers[:len(m.Containers):len(m.Containers)], all.GetContainers()...))}
	default:
		c.answer = m
	}
}

func sandboxesInOrder(items []*runtimeapi.PodSandbox) []*runtimeapi.PodSandbox {
	return slices.SortedStableFunc(slices.Values(items), func(a, b *runtimeapi.PodSandbox) int { return cmp.Compare(a.GetId(), b.GetId()) })
}

func containersInOrder(items []*runtimeapi.Container) []*runtimeapi.Container {
	return slices.SortedStableFunc(slices.Values(items), func(a, b *runtimeapi.Container) int { return cmp.Compare(a.GetId(), b.GetId()) })
}
