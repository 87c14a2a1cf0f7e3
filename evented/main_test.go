package evented

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/timestamps"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink is an arbiter.Sink that remembers. It takes room events and refuses the
// others; a negative room takes all.
type sink struct {
	mu   sync.Mutex
	all  []arbiter.Input
	room int
}

func (s *sink) Submit(in arbiter.Input) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, in)
}

func (s *sink) SubmitEvent(e *arbiter.EventSeen) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room == 0 {
		return false
	}
	s.room--
	s.all = append(s.all, e)
	return true
}

func (s *sink) setRoom(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = n
}

func (s *sink) inputs() []arbiter.Input {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]arbiter.Input(nil), s.all...)
}

// String says what was submitted, in order: U up, D down, X unsupported, E an
// event, O an overflow.
func (s *sink) String() string {
	var b strings.Builder
	for _, in := range s.inputs() {
		switch in := in.(type) {
		case *arbiter.EventSeen:
			b.WriteByte('E')
		case *arbiter.StreamOverflow:
			b.WriteByte('O')
		case *arbiter.StreamChanged:
			b.WriteByte(map[arbiter.StreamState]byte{arbiter.StreamUp: 'U', arbiter.StreamDown: 'D', arbiter.StreamUnsupported: 'X'}[in.State])
		}
	}
	return b.String()
}

func (s *sink) lost() (n, times int) {
	for _, in := range s.inputs() {
		if o, ok := in.(*arbiter.StreamOverflow); ok {
			n += o.Lost
			times++
		}
	}
	return n, times
}

// script is a Stream that does what it was told: send gives messages and
// errors to Recv.
type script struct {
	ctx context.Context
	c   chan any
}

func (s *script) Recv() (*runtimeapi.ContainerEventResponse, error) {
	select {
	case v := <-s.c:
		if err, ok := v.(error); ok {
			return nil, err
		}
		return v.(*runtimeapi.ContainerEventResponse), nil
	case <-s.ctx.Done():
		return nil, status.FromContextError(s.ctx.Err()).Err()
	}
}

func event(id string) *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{ContainerId: id}
}

// rig is a running Watcher over scripted streams. When it opens a stream, the
// next answer of open is taken: an error, or nil for a stream. Without answers
// left a stream opens.
type rig struct {
	*Watcher
	sink *sink
	stop func() error

	mu      sync.Mutex
	answers []error
	streams []*script
	opened  []time.Time
}

func start(t *testing.T, cfg Config, answers ...error) *rig {
	t.Helper()
	clock := sysclock.New()
	g := &rig{sink: &sink{room: -1}, answers: answers}
	cfg.Sink, cfg.Clock, cfg.Calls = g.sink, clock, arbiter.NewCalls(clock, new(timestamps.Counter))
	if cfg.Random == nil {
		cfg.Random = func() float64 { return 0.5 }
	}
	if cfg.Open == nil {
		cfg.Open = g.open
	}
	var err error
	if g.Watcher, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	g.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			return errors.New("run does not end")
		}
	})
	t.Cleanup(func() {
		if err := g.stop(); err != nil && !cfg.Required {
			t.Errorf("run: %v", err)
		}
	})
	return g
}

// open is the Config.Open of a rig. Answers that a real runtime only gives at
// the first Recv are given there.
func (g *rig) open(ctx context.Context) (Stream, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = append(g.opened, time.Now())
	s := &script{ctx: ctx, c: make(chan any, 10_000)}
	g.streams = append(g.streams, s)
	if len(g.answers) > 0 {
		if err := g.answers[0]; err != nil {
			s.c <- err
		}
		g.answers = g.answers[1:]
	}
	return s, nil
}

// send gives something to the newest stream.
func (g *rig) send(v ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range v {
		g.streams[len(g.streams)-1].c <- v
	}
}

// tries returns when streams were opened, from the first on.
func (g *rig) tries() (at []time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.opened {
		at = append(at, o.Sub(g.opened[0]))
	}
	return at
}
