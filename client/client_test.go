package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plegd/plegd/client"
	"github.com/plegd/plegd/internal/rpc"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/internal/unixsock"
)

// churnLarge makes pods whose events are large.
func churnLarge(n *rpctest.Node, label string, pods int) {
	for i := range pods {
		_, err := n.Runtime.RunPodSandbox(simruntime.PodSpec{
			Namespace: "default", Name: fmt.Sprint("p", i), UID: fmt.Sprint("u", i), Labels: map[string]string{"a": label, "b": label},
		})
		n.Must(err)
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	_, web := n.Pod("web")
	n.Pod("db")
	a := n.Start()
	a.Settle()
	c := dial(t, "unix://"+n.Socket, client.Options{})
	ctx := within(t)
	pods, at, err := c.Pods(ctx, &client.Filter{LabelSelector: "app=web"}, client.PodOptions{Full: true})
	if err != nil || len(pods) != 1 || pods[0].Name != "web" || pods[0].Containers[0].Status == nil || at != a.Generator.Position().String() {
		t.Errorf("pods %v at %s, %v", pods, at, err)
	}
	pod, err := c.Pod(ctx, "uid-web", client.PodOptions{NewerThan: time.Now()})
	if err != nil || pod.Containers[0].Id != web || pod.Containers[0].Status != nil {
		t.Errorf("pod %v, %v", pod, err)
	}
	if _, err := c.Pod(ctx, "none", client.PodOptions{}); !errors.Is(err, client.ErrNoPod) || status.Code(err) != codes.NotFound {
		t.Errorf("no pod: %v", err)
	}
	if _, _, err := c.Pods(ctx, nil, client.PodOptions{NewerThan: time.Now()}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("all pods, newer: %v", err)
	}
	s, err := c.Status(ctx)
	if err != nil || !s.Ready || s.Journal.Newest != at {
		t.Errorf("status %v, %v", s, err)
	}
	if got, err := c.Relist(ctx, true); err != nil || got != at {
		t.Errorf("relist: %s, %v", got, err)
	}
	if _, err := c.Relist(ctx, false); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Status(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

// A call goes to the agent that is there now, whatever became of the one before.
func TestCallsOverRestarts(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	c := dial(t, n.Socket, client.Options{})
	for range 3 {
		a := n.Start()
		if _, err := c.Status(within(t)); err != nil {
			t.Errorf("with an agent: %v", err)
		}
		a.Kill()
		if _, err := c.Status(within(t)); !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("without: %v", err)
		}
	}
}

// A call whose connection breaks is made once more: an agent was restarted
// meanwhile.
func TestCallWhoseConnectionBreaks(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	a := n.Start()
	socket := t.TempDir() + "/s"
	lis, err := unixsock.Listen(socket, unixsock.GroupMode)
	if err != nil {
		t.Fatal(err)
	}
	breaks := &breaking{Listener: lis}
	srv := rpc.New(rpc.Config{Health: a.Generator.Health, Source: func() (rpc.Source, error) {
		breaks.cut()
		return a.Generator, nil
	}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, breaks) }()
	c := dial(t, socket, client.Options{})
	if s, err := c.Status(within(t)); err != nil || !s.Ready {
		t.Errorf("status %v, %v", s, err)
	}
	if !breaks.broke {
		t.Error("no connection broke")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// breaking is a listener whose first connection breaks.
type breaking struct {
	net.Listener
	mu    sync.Mutex
	conn  net.Conn
	broke bool
}

func (b *breaking) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conn = conn
	return conn, err
}

func (b *breaking) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.broke {
		b.broke = true
		_ = b.conn.Close()
	}
}

// An error about the socket names it and says what to do.
func TestSocketErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/stale"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	_, runtime := simtest.Start(t, simruntime.Config{Seed: 1})
	for _, tt := range []struct {
		socket string
		is     error
		words  string
	}{
		{strings.TrimPrefix(runtime, "unix://"), nil, "something else answers there: a CRI runtime"},
		{dir + "/none", fs.ErrNotExist, "no such file or directory: is plegd running on this node"},
		{dir + "/stale", nil, "connection refused: plegd was killed, or is about to start"},
	} {
		c := dial(t, tt.socket, client.Options{})
		check := func(err error) {
			t.Helper()
			var bad *client.SocketError
			if !errors.As(err, &bad) || !errors.Is(err, client.ErrUnavailable) || tt.is != nil && !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.socket+": "+tt.words) {
				t.Errorf("%s: %v", tt.socket, err)
			}
		}
		_, err := c.Status(within(t))
		check(err)
		for _, err := range c.Events(within(t), client.From{}, nil) {
			check(err)
		}
		check(c.NewCache(client.CacheOptions{}).Run(within(t)))
		check(c.WaitFor(within(t), nil, func([]*client.Pod) (bool, error) { return true, nil }))
	}
	for _, socket := range []string{"", "unix://", "/" + strings.Repeat("x", 200)} {
		if c, err := client.Dial(socket, client.Options{}); err == nil {
			_ = c.Close()
			t.Errorf("socket %q is taken", socket)
		}
	}
}
