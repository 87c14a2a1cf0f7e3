// Package rpctest runs agents for tests of the API's server and client: a
// generator on a simulated runtime, served on a unix socket, that can be stopped
// and killed and started again.
package rpctest

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/rpc"
	"github.com/plegd/plegd/internal/seam"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

// Timeout is how long a test waits for what has to happen, on a machine that is
// busy with others.
const Timeout = 30 * time.Second

// Node is a runtime, and what an agent on it leaves behind.
type Node struct {
	Runtime *simruntime.Runtime
	Socket  string      // of the agent
	Config  pleg.Config // of the next agent
	RPC     rpc.Config  // of the next agent, without Source and Health
	t       testing.TB
}

// New starts a runtime.
func New(t testing.TB) *Node {
	t.Helper()
	rt, path := simtest.Start(t, simruntime.Config{Seed: 1})
	return &Node{
		Runtime: rt, Socket: filepath.Join(t.TempDir(), "s"), t: t,
		Config: pleg.Config{Endpoint: path, StateDir: t.TempDir(), RelistPeriod: 100 * time.Millisecond},
	}
}

// Agent runs until it is stopped or killed, at the latest at the end of the test.
type Agent struct {
	Generator *pleg.Generator
	node      *Node
	store     *gate
	conns     conns
	cancel    context.CancelFunc
	end       func()
}

// Start starts an agent and waits until it is ready.
func (n *Node) Start() *Agent {
	n.t.Helper()
	a := n.StartUnready()
	WaitFor(n.t, "the agent to be ready", func() bool { return a.Generator.Health().Ready })
	return a
}

// StartUnready starts an agent.
func (n *Node) StartUnready() *Agent {
	n.t.Helper()
	a := &Agent{node: n}
	cfg := n.Config
	seam.Set(&cfg, seam.Hooks{Store: func(s store.Store) store.Store {
		a.store = &gate{Store: s}
		return a.store
	}})
	gen, err := pleg.New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	a.Generator = gen
	r := n.RPC
	r.Health, r.Source = gen.Health, func() (rpc.Source, error) { return gen, nil }
	srv, err := server.New(server.Config{
		Socket: n.Socket, Health: gen.Health, Source: func() (server.Source, error) { return gen, nil }, Logger: r.Logger,
		Metrics: http.NotFoundHandler(),
		RPC:     func(ctx context.Context, lis net.Listener) error { return rpc.New(r).Serve(ctx, a.conns.of(lis)) },
	})
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	var all sync.WaitGroup
	all.Go(func() {
		if err := srv.Run(ctx); err != nil {
			n.t.Errorf("serve: %v", err)
		}
	})
	all.Go(func() {
		if err := gen.Run(ctx); err != nil {
			n.t.Errorf("run: %v", err)
		}
	})
	a.end = sync.OnceFunc(func() { cancel(); all.Wait() })
	n.t.Cleanup(a.end)
	return a
}

// Stop ends the agent cleanly.
func (a *Agent) Stop() { a.end() }

// Kill ends the agent as SIGKILL does: at one moment its connections break and
// nothing more is written. The next agent gets the state of that moment.
func (a *Agent) Kill() {
	a.node.t.Helper()
	dir := a.node.t.TempDir()
	a.store.mu.Lock() // between two commits: what readers have is written
	err := copyFile(filepath.Join(a.node.Config.StateDir, store.FileName), filepath.Join(dir, store.FileName))
	a.conns.cut()
	a.store.mu.Unlock()
	if err != nil {
		a.node.t.Fatal(err)
	}
	a.node.Config.StateDir = dir
	a.end()
}

// Hold keeps the agent from writing anything, as a disk that hangs does, until
// release is called.
func (a *Agent) Hold() (release func()) {
	a.store.mu.Lock()
	return sync.OnceFunc(a.store.mu.Unlock)
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		return err
	}
	return dst.Close()
}

// gate is a store whose commits can be held up.
type gate struct {
	store.Store
	mu sync.RWMutex
}

// Commit implements [store.Store].
func (g *gate) Commit(b *store.Batch) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.Store.Commit(b)
}

// conns knows the connections of a listener.
type conns struct {
	net.Listener
	mu   sync.Mutex
	all  []net.Conn
	dead bool
}

func (c *conns) of(lis net.Listener) net.Listener {
	c.Listener = lis
	return c
}

// Accept implements [net.Listener].
func (c *conns) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		_ = conn.Close()
	}
	c.all = append(c.all, conn)
	return conn, nil
}

// cut closes them all, and those to come.
func (c *conns) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	for _, conn := range c.all {
		_ = conn.Close()
	}
}

// Journal returns all events that are kept.
func (a *Agent) Journal() []pleg.Event {
	a.node.t.Helper()
	oldest := a.Generator.Oldest()
	sub, err := a.Generator.Subscribe(&oldest)
	if err != nil {
		a.node.t.Fatal(err)
	}
	var events []pleg.Event
	for end := a.Generator.Position(); sub.Position() != end; {
		ev, err := sub.Next(a.node.t.Context())
		if err != nil {
			a.node.t.Fatal(err)
		}
		events = append(events, *ev)
	}
	return events
}

// Settle waits until nothing is left to find out of a runtime that is quiet.
func (a *Agent) Settle() {
	a.node.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	for range 3 {
		if err := a.Generator.Relist(ctx); err != nil {
			a.node.t.Fatal(err)
		}
	}
	WaitFor(a.node.t, "an empty reinspection queue", func() bool { return len(a.Generator.Status().Asks) == 0 })
}

// Pod makes a pod with one container that runs, and returns both ids.
func (n *Node) Pod(name string) (sandbox, container string) {
	n.t.Helper()
	sandbox, err := n.Runtime.RunPodSandbox(simruntime.PodSpec{
		Namespace: "default", Name: name, UID: "uid-" + name, Labels: map[string]string{"app": name},
	})
	n.Must(err)
	return sandbox, n.Container(sandbox, "app")
}

// Container makes a container that runs.
func (n *Node) Container(sandbox, name string) string {
	n.t.Helper()
	id, err := n.Runtime.CreateContainer(sandbox, simruntime.ContainerSpec{Name: name})
	n.Must(err)
	n.Must(n.Runtime.StartContainer(id))
	return id
}

// Remove takes a pod of Pod away.
func (n *Node) Remove(sandbox, container string) {
	n.t.Helper()
	n.Must(n.Runtime.StopContainer(container, false))
	n.Must(n.Runtime.RemoveContainer(container))
	n.Must(n.Runtime.StopPodSandbox(sandbox))
	n.Must(n.Runtime.RemovePodSandbox(sandbox))
}

// ListsAre has a rule act on full lists, whichever form the agent asks for.
func (n *Node) ListsAre(rule simruntime.Rule) {
	n.t.Helper()
	for _, rule.Method = range []string{"ListPodSandbox", "StreamPodSandboxes"} {
		_, err := n.Runtime.AddRule(rule)
		n.Must(err)
	}
}

// Must fails the test for an error.
func (n *Node) Must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// WaitFor waits for what has to happen.
func WaitFor(t testing.TB, what string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(Timeout); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
