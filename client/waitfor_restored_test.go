package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/client"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/simruntime"
)

// Who waits while the runtime hangs hears why it isn't known what there is.
func TestWaitForWhileTheListHangs(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Pod("web")
	a := n.Start()
	a.Settle()
	a.Stop()
	n.ListsAre(simruntime.Rule{Hang: true})
	n.StartUnready()
	ctx, cancel := context.WithTimeout(within(t), time.Second)
	defer cancel()
	err := dial(t, n.Socket, client.Options{Wait: true}).WaitFor(ctx, nil, func([]*client.Pod) (bool, error) {
		return false, errors.New("it is taken for known")
	})
	var unmet *client.UnmetError
	if !errors.As(err, &unmet) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(unmet.Why, client.ErrUnavailable) ||
		!strings.Contains(err.Error(), "from an earlier run") {
		t.Errorf("error %v", err)
	}
	n.Runtime.ClearRules()
}

// What is passed through while it isn't known what there is is seen once it is.
func TestWaitForSeesEachStateThatWasRestored(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	sandbox, _ := n.Pod("web")
	a := n.Start()
	a.Settle()
	a.Stop()
	n.ListsAre(simruntime.Rule{Code: codes.Internal, Message: "not now"})
	a = n.StartUnready()
	seen := seenOf(t, dial(t, n.Socket, client.Options{Wait: true}), "web", "job")
	rpctest.WaitFor(t, "lists to fail", func() bool { return a.Generator.Status().Relist.Failures > 3 })
	if got := seen.line(); got != "" {
		t.Errorf("taken for known: %s", got)
	}
	heard := func(typ string) {
		t.Helper()
		rpctest.WaitFor(t, typ, func() bool {
			return slices.ContainsFunc(a.Journal(), func(ev pleg.Event) bool { return ev.Container.Name == "job" && string(ev.Type) == typ })
		})
	}
	id := n.Container(sandbox, "job")
	heard("ContainerStarted")
	n.Must(n.Runtime.ExitContainer(id, 0, ""))
	heard("ContainerDied")
	n.Must(n.Runtime.RemoveContainer(id))
	n.Runtime.ClearRules()
	rpctest.WaitFor(t, "each state", func() bool { return strings.HasSuffix(seen.line(), "created running exited none") })
}

// seenOf has a wait note each state of a container of a pod, until the end of the test.
func seenOf(t *testing.T, c *client.Client, pod, container string) *notes {
	seen := &notes{}
	ctx, cancel := context.WithCancel(within(t))
	done := make(chan error, 1)
	go func() {
		done <- c.WaitFor(ctx, &client.Filter{Pods: []string{pod}}, func(pods []*client.Pod) (bool, error) {
			state := "none"
			for _, pod := range pods {
				for _, c := range pod.Containers {
					if c.Name == container {
						state = c.State
					}
				}
			}
			if all := seen.all(); len(all) == 0 || all[len(all)-1] != state {
				seen.add(state)
			}
			return false, nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the wait ends with %v", err)
		}
	})
	return seen
}
