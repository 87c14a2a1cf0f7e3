package criserver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/internal/writertest"
)

func TestMain(m *testing.M) {
	if !writertest.Read(openEvents) {
		goleak.VerifyTestMain(m)
	}
}

// patience bounds every wait; the machine may be busy.
const patience = 30 * time.Second

// node is a simulated runtime, a generator on it and the endpoint.
type node struct {
	t      testing.TB
	rt     *simruntime.Runtime
	path   string // of the runtime's socket
	gen    *pleg.Generator
	server *Server
	conn   *grpc.ClientConn
	cri    runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
	direct runtimeapi.RuntimeServiceClient // the runtime itself
	stop   func()                          // ends the endpoint; may be called again
}

type option func(*pleg.Config, *Config)

// start makes a node whose generator has listed everything, and hardly lists
// again by itself.
func start(t testing.TB, sim simruntime.Config, options ...option) *node {
	t.Helper()
	rt, path := simtest.Start(t, sim)
	return startOn(t, rt, path, options...)
}

func startOn(t testing.TB, rt *simruntime.Runtime, path string, options ...option) *node {
	t.Helper()
	n := &node{t: t, rt: rt, path: path}
	gcfg := pleg.Config{Endpoint: path, RelistPeriod: time.Hour, RelistPeriodMax: time.Hour}
	cfg := Config{Socket: filepath.Join(t.TempDir(), "cri.sock"), Untrusted: ReadThrough}
	for _, o := range options {
		o(&gcfg, &cfg)
	}
	var err error
	if n.gen, err = pleg.New(gcfg); err != nil {
		t.Fatal(err)
	}
	if cfg.Source == nil {
		cfg.Source = func() (Source, string, error) { return n.gen, n.gen.Endpoint(), nil }
	}
	if n.server, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	inBackground(t, n.gen.Run)
	n.stop = inBackground(t, n.server.Run)
	n.conn = dial(t, cfg.Socket)
	n.cri, n.images = runtimeapi.NewRuntimeServiceClient(n.conn), runtimeapi.NewImageServiceClient(n.conn)
	n.direct = runtimeapi.NewRuntimeServiceClient(simtest.Dial(t, path))
	return n
}

// inBackground runs something until the end of the test, or until the function
// that it returns is called.
func inBackground(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	ended := false
	stop = func() {
		cancel()
		if ended {
			return
		}
		ended = true
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("it does not end")
		}
	}
	t.Cleanup(stop)
	return stop
}

func dial(t testing.TB, socket string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// pod makes a pod with a container that runs.
func (n *node) pod(name string) (sandbox, container string) {
	n.t.Helper()
	return makePod(n.t, n.rt, name)
}

func makePod(t testing.TB, rt *simruntime.Runtime, name string) (sandbox, container string) {
	t.Helper()
	sandbox, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: name, UID: "uid-" + name})
	if err != nil {
		t.Fatal(err)
	}
	container, err = rt.CreateContainer(sandbox, simruntime.ContainerSpec{Name: "main"})
	if err == nil {
		err = rt.StartContainer(container)
	}
	if err != nil {
		t.Fatal(err)
	}
	return sandbox, container
}

// quiet waits until the generator has everything, asks nothing, and the items of
// lists are learnt; from then on a call is one that a client has caused.
func (n *node) quiet() {
	n.t.Helper()
	eventually(n.t, "quiet", func() error {
		if h := n.gen.Health(); !h.Listed || !h.Ready {
			return errors.New("not ready")
		}
		if st := n.gen.Status(); st.Queued+len(st.Asks)+st.Relist.Waiting+st.Relist.InFlight > 0 {
			return errors.New("something is still to be asked, or told")
		}
		states := map[string]int32{}
		for _, s := range n.rt.Truth().Sandboxes {
			states[s.GetId()] = int32(s.GetState())
		}
		for _, c := range n.rt.Truth().Containers {
			states[c.Status.GetId()] = int32(c.Status.GetState())
		}
		all := n.gen.Entities()
		if len(all) != len(states) {
			return fmt.Errorf("%d entities, want %d", len(all), len(states))
		}
		for i := range all {
			e := &all[i]
			if d := doubtStatus(e); d != "" {
				return errors.New(string(d))
			}
			if want, ok := states[e.ID]; !ok || e.Reported != want {
				return fmt.Errorf("%s is %d, want %d", e.ID, e.Reported, want)
			}
		}
		if n.server.shelf.lacks(all) {
			return errors.New("items are lacking")
		}
		return nil
	})
}

func eventually(t testing.TB, what string, met func() error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := met()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s: %v", what, err)
		}
	}
}

// calls is how many calls the runtime has had, but for event streams.
func (n *node) calls() int { return n.rt.CallStats("").Started }

// ctx bounds a call that would else wait for ever.
func (n *node) ctx() context.Context {
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	n.t.Cleanup(cancel)
	return ctx
}

// lacks reports whether the item of an entity is not there yet.
func (h *shelf) lacks(known []pleg.Entity) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range known {
		if !e.Restored && h.sandboxes[e.ID] == nil && h.containers[e.ID] == nil {
			return true
		}
	}
	return false
}
