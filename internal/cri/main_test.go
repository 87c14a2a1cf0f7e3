package cri

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/internal/sysclock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client dials a socket until the end of the test.
func client(t *testing.T, path string, change ...func(*Config)) *Client {
	t.Helper()
	cfg := Config{Endpoint: "unix://" + path, RPCTimeout: 5 * time.Second, Clock: sysclock.New()}
	for _, f := range change {
		f(&cfg)
	}
	c, err := Dial(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// simulated returns a simulated runtime with one pod of one running container,
// and a client of it.
func simulated(t *testing.T, cfg simruntime.Config, change ...func(*Config)) (rt *simruntime.Runtime, c *Client, pod, container string) {
	t.Helper()
	rt, path := simtest.Start(t, cfg)
	pod, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: "web", UID: "u1"})
	if err != nil {
		t.Fatal(err)
	}
	if container, err = rt.CreateContainer(pod, simruntime.ContainerSpec{Name: "app"}); err != nil {
		t.Fatal(err)
	}
	if err := rt.StartContainer(container); err != nil {
		t.Fatal(err)
	}
	return rt, client(t, path, change...), pod, container
}

// calls is an Observer that remembers.
type calls struct {
	mu       sync.Mutex
	inFlight int
	done     map[string]map[codes.Code]int
}

func (c *calls) CallStarted(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight++
}

func (c *calls) CallDone(method string, code codes.Code, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if took < 0 {
		panic("negative duration")
	}
	c.inFlight--
	if c.done == nil {
		c.done = map[string]map[codes.Code]int{}
	}
	if c.done[method] == nil {
		c.done[method] = map[codes.Code]int{}
	}
	c.done[method][code]++
}

func (c *calls) count(method string, code codes.Code) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done[method][code]
}

func (c *calls) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inFlight
}

// eventually waits for something that happens elsewhere.
func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !met(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func short(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
