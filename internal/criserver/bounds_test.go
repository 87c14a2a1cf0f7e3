package criserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/crowd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/unixsock"
)

// copied counts how many copies of all that is known are made at once.
type copied struct {
	Source
	mu         sync.Mutex
	most, made int
}

func (c *copied) Entities() []pleg.Entity {
	c.mu.Lock()
	c.made++
	c.most = max(c.most, c.made)
	c.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	c.mu.Lock()
	c.made--
	c.mu.Unlock()
	return c.Source.Entities()
}

// Only so many calls at a time work on a copy of all that is known, whatever they ask
// for; the others wait their turn, unless their client has gone.
func TestListsAreMadeInTurns(t *testing.T) {
	n := start(t, simruntime.Config{})
	sandbox, container := n.pod("a")
	n.quiet()
	_, err := n.cri.ListContainers(n.ctx(), &runtimeapi.ListContainersRequest{}) // all is learnt
	n.must(err)
	src := &copied{Source: n.gen}
	cfg := Config{Socket: filepath.Join(t.TempDir(), "cri.sock"), Untrusted: Unavailable}
	cfg.Source = func() (Source, string, error) { return src, n.gen.Endpoint(), nil }
	server, err := New(cfg)
	n.must(err)
	inBackground(t, server.Run)
	c := runtimeapi.NewRuntimeServiceClient(dial(t, cfg.Socket))
	eventually(t, "all to be learnt", func() error { return second(c.ListContainers(n.ctx(), &runtimeapi.ListContainersRequest{})) })
	calls := []func(context.Context) error{
		func(ctx context.Context) error {
			return second(c.ListContainers(ctx, &runtimeapi.ListContainersRequest{}))
		},
		func(ctx context.Context) error {
			return second(c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}))
		},
		func(ctx context.Context) error {
			return second(c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: container[:8]}))
		},
		func(ctx context.Context) error {
			return second(c.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox[:8]}))
		},
	}
	var clients sync.WaitGroup
	for i := range 8 * maxMaking {
		clients.Go(func() {
			if err := calls[i%len(calls)](n.ctx()); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	if src.most > maxMaking {
		t.Errorf("%d at once", src.most)
	}
	for range maxMaking { // as when all of them are at work
		server.making <- struct{}{}
	}
	for i, call := range calls {
		ctx, cancel := context.WithTimeout(n.ctx(), 50*time.Millisecond)
		if err := call(ctx); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("call %d: %v", i, err)
		}
		cancel()
	}
	for range maxMaking {
		<-server.making
	}
}

func TestBadRequests(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.pod("a")
	n.quiet()
	before := n.calls()
	large := strings.Repeat("x", maxRequest+1)
	if _, err := n.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: large}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a large request: %v", err)
	}
	// What is refused is refused whatever its size: it isn't read.
	_, err := n.cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: strings.Repeat("x", 8<<20)})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("a large request that is refused: %v", err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "h", strings.Repeat("x", 2*maxHeaders))
	if _, err := n.cri.Version(ctx, nil); err == nil {
		t.Error("large headers are taken")
	}
	for what, err := range map[string]error{
		"list":       second(n.cri.ListPodSandbox(t.Context(), nil)),
		"containers": second(n.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: nil})),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// An id is not printed as it comes.
	_, err = n.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: "a\nb\x00\x1b"})
	if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), `"a\nb\x00\x1b"`) {
		t.Errorf("%q", err)
	}
	if n.calls() != before {
		t.Errorf("%d calls", n.calls()-before)
	}
	// Handlers are called in tests without a message too.
	for what, err := range map[string]error{
		"sandbox":   second(n.server.PodSandboxStatus(t.Context(), nil)),
		"container": second(n.server.ContainerStatus(t.Context(), nil)),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if _, err := n.server.ListPodSandbox(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// A call whose request doesn't come ends, so that it keeps no connection's place; one
// that has asked lasts.
func TestUnaskedCallEnds(t *testing.T) {
	const stall = time.Second
	n := start(t, simruntime.Config{}, func(_ *pleg.Config, c *Config) { c.Stall = stall })
	n.quiet()
	events := n.subscribe()
	_, err := n.rt.AddRule(simruntime.Rule{Method: "Version", Delay: 2 * stall})
	n.must(err)
	answered := make(chan error, 1)
	go func() { answered <- second(n.cri.Version(n.ctx(), &runtimeapi.VersionRequest{})) }()
	var calls []grpc.ClientStream
	for _, method := range []string{
		runtimeapi.RuntimeService_Status_FullMethodName, runtimeapi.RuntimeService_StreamContainers_FullMethodName,
		runtimeapi.RuntimeService_GetContainerEvents_FullMethodName,
	} {
		call, err := n.conn.NewStream(n.ctx(), &grpc.StreamDesc{}, method)
		n.must(err)
		calls = append(calls, call)
	}
	for i, call := range calls {
		if err := call.RecvMsg(&runtimeapi.StatusResponse{}); status.Code(err) != codes.Canceled {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := <-answered; err != nil {
		t.Errorf("who has asked: %v", err)
	}
	sandbox, _ := n.pod("a")
	if ev, err := events.Recv(); err != nil || ev.GetContainerId() != sandbox {
		t.Errorf("who has asked for events: %v, %v", ev, err)
	}
}

// Connections are bounded. Those in use are never closed for others, which wait
// then.
func TestManyConnections(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.quiet()
	var streams []grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]
	for range maxConns - 1 {
		streams = append(streams, n.subscribe())
	}
	_, err := n.cri.Version(t.Context(), &runtimeapi.VersionRequest{}) // the last place, without a call from now on
	n.must(err)
	streams = append(streams, n.subscribe()) // in its place
	conn := dial(t, n.server.cfg.Socket)
	soon, stop := context.WithTimeout(t.Context(), crowd.Settle+300*time.Millisecond)
	defer stop()
	if _, err := runtimeapi.NewRuntimeServiceClient(conn).Version(soon, &runtimeapi.VersionRequest{}); err == nil {
		t.Error("one more is served")
	}
	sandbox, _ := n.pod("a")
	for i, s := range streams {
		if ev, err := s.Recv(); err != nil || ev.GetContainerId() != sandbox {
			t.Errorf("stream %d: %v, %v", i, ev, err)
		}
	}
	n.server.hub.close(errMissed, nil) // the calls end, the connections stay
	_, err = runtimeapi.NewRuntimeServiceClient(conn).Version(n.ctx(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
	n.must(err)
}

// Who makes connections and forgets them keeps nobody out, and nor does who says
// nothing.
func TestForgottenConnections(t *testing.T) {
	for what, forget := range map[string]func(n *node){
		"used": func(n *node) {
			_, err := runtimeapi.NewRuntimeServiceClient(dial(n.t, n.server.cfg.Socket)).Version(n.ctx(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
			n.must(err)
		},
		"silent": func(n *node) {
			c, err := net.DialTimeout("unix", n.server.cfg.Socket, patience)
			n.must(err)
			n.t.Cleanup(func() { _ = c.Close() })
		},
	} {
		t.Run(what, func(t *testing.T) {
			n := start(t, simruntime.Config{})
			n.quiet()
			events := n.subscribe()
			for range maxConns + 20 {
				forget(n)
			}
			_, err := runtimeapi.NewRuntimeServiceClient(dial(t, n.server.cfg.Socket)).Version(n.ctx(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
			n.must(err)
			sandbox, _ := n.pod("a")
			if ev, err := events.Recv(); err != nil || ev.GetContainerId() != sandbox {
				t.Errorf("who was there first: %v, %v", ev, err)
			}
		})
	}
}

func TestSocket(t *testing.T) {
	n := start(t, simruntime.Config{})
	path := n.server.cfg.Socket
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o660 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := New(n.server.cfg); !errors.Is(err, unixsock.ErrInUse) || !strings.HasPrefix(err.Error(), path+": ") {
		t.Errorf("a second endpoint: %v", err)
	}
	n.stop()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	s, err := New(Config{Socket: filepath.Join(t.TempDir(), "s")})
	n.must(err)
	n.must(s.Close()) // without Run
}

// While pods come and go, many clients ask at once; in the end the endpoint says
// what the runtime says.
func TestClientsUnderChurn(t *testing.T) {
	n := start(t, simruntime.Config{}, func(g *pleg.Config, _ *Config) { g.RelistPeriod, g.RelistPeriodMax = 50*time.Millisecond, time.Second })
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 4 {
		events := n.subscribe()
		clients.Go(func() {
			for ctx.Err() == nil {
				l, err := n.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				for _, c := range l.GetContainers() {
					_, err := n.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
					if code := status.Code(err); err != nil && code != codes.NotFound && ctx.Err() == nil {
						t.Error(err)
					}
				}
				if _, err := n.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
		clients.Go(func() {
			for {
				if _, err := events.Recv(); err != nil {
					if code := status.Code(err); code != codes.Unavailable { // ours ends with the node
						t.Error(err)
					}
					return
				}
			}
		})
	}
	for i := range 60 {
		sandbox, container := n.pod(fmt.Sprint("p", i))
		if i%2 == 0 {
			n.must(n.rt.ExitContainer(container, 1, "Error"))
		}
		if i%3 > 0 {
			n.must(n.rt.StopPodSandbox(sandbox))
			n.must(n.rt.RemovePodSandbox(sandbox))
		}
	}
	stop()
	n.quiet()
	want, err := n.direct.ListContainers(t.Context(), nil)
	n.must(err)
	got, err := n.cri.ListContainers(t.Context(), nil)
	same(t, "containers", sorted(want.GetContainers()), sorted(got.GetContainers()), err)
	n.stop()
	clients.Wait()
}
