package generic

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/timestamps"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink is an arbiter.Sink that remembers, and ends calls as the loop does.
type sink struct {
	calls *arbiter.Calls
	mu    sync.Mutex
	all   []arbiter.Input
}

func (s *sink) Submit(in arbiter.Input) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, in)
	switch in := in.(type) {
	case *arbiter.ListSeen:
		s.calls.End(in.SandboxCall.Sent.Tick)
		s.calls.End(in.ContainerCall.Sent.Tick)
	case *arbiter.StatusSeen:
		s.calls.End(in.Call.Sent.Tick)
	}
}

func (s *sink) SubmitEvent(*arbiter.EventSeen) bool { panic("a relister has no events") }

// got returns what was submitted, of one type.
func got[T arbiter.Input](s *sink) (all []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range s.all {
		if in, ok := in.(T); ok {
			all = append(all, in)
		}
	}
	return all
}

// since returns what was submitted after the first n.
func (s *sink) since(n int) []arbiter.Input {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]arbiter.Input(nil), s.all[n:]...)
}

func (s *sink) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// fake is a Runtime whose answers are functions.
type fake struct {
	mu         sync.Mutex
	sandboxes  func(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	containers func(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	sandbox    func(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
	container  func(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
}

// change replaces answers while it is in use.
func (f *fake) change(c func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c()
}

// pick reads an answer.
func pick[T any](f *fake, answer *T) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *answer
}

func (f *fake) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	answer := pick(f, &f.sandboxes)
	if answer == nil {
		return nil, nil
	}
	return answer(ctx, filter)
}

func (f *fake) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	answer := pick(f, &f.containers)
	if answer == nil {
		return nil, nil
	}
	return answer(ctx, filter)
}

func (f *fake) PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	answer := pick(f, &f.sandbox)
	if answer == nil {
		return nil, status.Error(codes.NotFound, "no sandbox "+id)
	}
	return answer(ctx, id)
}

func (f *fake) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	answer := pick(f, &f.container)
	if answer == nil {
		return &runtimeapi.ContainerStatus{Id: id}, nil
	}
	return answer(ctx, id)
}

// hang waits for the end of a call's context.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// rig is a running Relister, its sink and its clock.
type rig struct {
	*Relister
	sink  *sink
	clock timestamps.Clock
	stop  func()
}

// stretch makes the period the longest, as clean relists do in their time.
func (g *rig) stretch() {
	g.changePeriod(func(p *period) {
		for p.current < p.longest {
			p.judged(arbiter.Relist{Clean: true}, p.next)
		}
	})
}

// start runs a Relister until the end of the test, or stop.
func start(t *testing.T, cfg Config) *rig {
	t.Helper()
	g := &rig{clock: sysclock.New()}
	calls := arbiter.NewCalls(g.clock, new(timestamps.Counter))
	g.sink = &sink{calls: calls}
	cfg.Sink, cfg.Calls, cfg.Clock = g.sink, calls, g.clock
	if cfg.Random == nil {
		cfg.Random = func() float64 { return 0.5 }
	}
	var err error
	if g.Relister, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	var once sync.Once
	g.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("run: %v", err)
				}
			case <-time.After(20 * time.Second): // less than any call that hangs would take
				t.Fatal("run does not end")
			}
			if n := calls.InFlight(); n != 0 {
				t.Errorf("%d calls count as in flight after the end", n)
			}
		})
	}
	t.Cleanup(g.stop)
	return g
}
