package client_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/client"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/simruntime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial returns a client until the end of the test.
func dial(t testing.TB, socket string, o client.Options) *client.Client {
	t.Helper()
	c, err := client.Dial(socket, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// within is a context that ends with the test, and before it hangs.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*rpctest.Timeout)
	t.Cleanup(cancel)
	return ctx
}

// churner makes a history on a node, in parts.
type churner struct {
	t testing.TB
	w *simruntime.Workload
}

func churn(t testing.TB, n *rpctest.Node, pods int) *churner {
	t.Helper()
	w, err := simruntime.NewWorkload(n.Runtime, simruntime.WorkloadConfig{Seed: 3, Pods: pods})
	if err != nil {
		t.Fatal(err)
	}
	return &churner{t, w}
}

func (c *churner) steps(n int) {
	c.t.Helper()
	for range n {
		if _, err := c.w.Step(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// notes are what goroutines write down for a test.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) add(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, s)
}

func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}

func (n *notes) line() string { return strings.Join(n.all(), " ") }

// of are the positions of a part of the journal, in a line.
func of(journal []pleg.Event) string {
	var list []string
	for _, ev := range journal {
		list = append(list, ev.Position.String())
	}
	return strings.Join(list, " ")
}
