package client_test

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/plegd/plegd/client"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/simruntime"
)

// Who waits for an agent gets it when it comes.
func TestWaitForTheAgent(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	_, web := n.Pod("web")
	missed := make(chan error, 1)
	back := make(chan struct{}, 1)
	c := dial(t, n.Socket, client.Options{
		Wait: true, Disconnected: func(err error) { missed <- err }, Reconnected: func() { back <- struct{}{} },
	})
	done := make(chan error, 1)
	go func() {
		done <- c.WaitFor(within(t), &client.Filter{Uids: []string{"uid-web"}}, func(pods []*client.Pod) (bool, error) {
			return len(pods) == 1 && pods[0].Containers[0].State == "exited", nil
		})
	}()
	if err := <-missed; !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	n.Start()
	<-back
	n.Must(n.Runtime.ExitContainer(web, 3, ""))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An agent that answers, and doesn't know what there is, is not one that doesn't answer.
func TestWaitForAnAgentThatDoesNotKnow(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.ListsAre(simruntime.Rule{Code: codes.Internal, Message: "not now"})
	n.StartUnready()
	met := func([]*client.Pod) (bool, error) { return false, errors.New("it is taken for known") }
	wait := func(socket string) *client.UnmetError {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := dial(t, socket, client.Options{Wait: true}).WaitFor(ctx, nil, met)
		var unmet *client.UnmetError
		if !errors.As(err, &unmet) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v", err)
		}
		return unmet
	}
	var socket *client.SocketError
	if unmet := wait(n.Socket); errors.As(unmet.Why, &socket) || !strings.Contains(unmet.Why.Error(), "pods are not known yet") {
		t.Errorf("why: %v", unmet.Why)
	}
	if unmet := wait(filepath.Join(t.TempDir(), "none")); !errors.As(unmet.Why, &socket) {
		t.Errorf("why: %v", unmet.Why)
	}
}

func TestWaitFor(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	sandbox, web := n.Pod("web")
	n.Pod("db")
	n.Start()
	c := dial(t, n.Socket, client.Options{})
	seen := make(chan int, 100)
	done := make(chan error, 1)
	go func() {
		done <- c.WaitFor(within(t), &client.Filter{Pods: []string{"web"}}, func(pods []*client.Pod) (bool, error) {
			seen <- len(pods)
			return len(pods) == 0, nil
		})
	}()
	if <-seen != 1 {
		t.Error("not one pod at first")
	}
	n.Remove(sandbox, web)
	if err := <-done; err != nil {
		t.Error(err)
	}
	enough := errors.New("enough")
	err := c.WaitFor(within(t), nil, func([]*client.Pod) (bool, error) { return false, enough })
	if !errors.Is(err, enough) {
		t.Errorf("its own error: %v", err)
	}
	ctx, cancel := context.WithTimeout(within(t), 50*time.Millisecond)
	defer cancel()
	err = c.WaitFor(ctx, nil, func([]*client.Pod) (bool, error) { return false, nil })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the deadline: %v", err)
	}
}

// Each state that is passed through is seen, however short.
func TestWaitForSeesEachState(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	sandbox, _ := n.Pod("web")
	n.Start()
	c := dial(t, n.Socket, client.Options{})
	began := make(chan struct{}, 100)
	var seen notes
	done := make(chan error, 1)
	go func() {
		done <- c.WaitFor(within(t), &client.Filter{Containers: []string{"job"}}, func(pods []*client.Pod) (bool, error) {
			began <- struct{}{}
			state := "none"
			for _, pod := range pods {
				for _, c := range pod.Containers {
					if c.Name == "job" {
						state = c.State
					}
				}
			}
			if all := seen.all(); len(all) == 0 || all[len(all)-1] != state {
				seen.add(state)
			}
			return state == "none" && len(seen.all()) > 1, nil
		})
	}()
	<-began
	id := n.Container(sandbox, "job")
	n.Must(n.Runtime.ExitContainer(id, 0, ""))
	n.Must(n.Runtime.RemoveContainer(id))
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := seen.line(); got != "none created running exited none" {
		t.Errorf("seen: %s", got)
	}
}

// What an earlier run of the agent knew is waited for until it is seen again: at the
// beginning, and where a new snapshot takes the place of events that are gone.
func TestWaitForDoesNotTrustWhatIsRestored(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	sandbox, first := n.Pod("web")
	n.Must(n.Runtime.ExitContainer(first, 0, ""))
	states := []string{t.TempDir(), t.TempDir()}
	for _, n.Config.StateDir = range states { // both know of a container that has exited
		a := n.Start()
		a.Settle()
		a.Stop()
	}
	n.Must(n.Runtime.RemoveContainer(first))
	last := n.Container(sandbox, "app")
	n.ListsAre(simruntime.Rule{Code: codes.Internal, Message: "not now"})

	n.Config.StateDir = states[0]
	a := n.StartUnready()
	var seen, back notes
	c := dial(t, n.Socket, client.Options{Wait: true, Reconnected: func() { back.add("back") }})
	if pods, _, err := c.Pods(within(t), nil, client.PodOptions{}); err != nil || len(pods) != 1 || !pods[0].Restored {
		t.Fatalf("not restored: %v, %v", pods, err)
	}
	done := make(chan error, 1)
	go func() {
		done <- c.WaitFor(within(t), nil, func(pods []*client.Pod) (bool, error) {
			state := "none"
			for _, pod := range pods {
				for _, c := range pod.Containers {
					state = c.State
				}
			}
			seen.add(state)
			return state == "exited", nil
		})
	}()
	// Who has no time to wait for that hears why it isn't known.
	short, cancel := context.WithTimeout(within(t), time.Second)
	defer cancel()
	err := c.WaitFor(short, nil, func([]*client.Pod) (bool, error) { return false, errors.New("it is taken for known") })
	var unmet *client.UnmetError
	if !errors.As(err, &unmet) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(unmet.Why, client.ErrUnavailable) || !strings.Contains(err.Error(), "not now") {
		t.Errorf("error %v", err)
	}
	// Lists are asked for, and in vain.
	running := func(looks int) func() bool {
		return func() bool { all := seen.all(); return len(all) > looks && all[len(all)-1] == "running" }
	}
	failures := func(n int) func() bool { return func() bool { return a.Generator.Status().Relist.Failures > n } }
	rpctest.WaitFor(t, "lists to fail", failures(3))
	n.Runtime.ClearRules()
	rpctest.WaitFor(t, "the truth", running(0))

	// Another agent, whose events don't continue those before.
	n.ListsAre(simruntime.Rule{Code: codes.Internal, Message: "not now"})
	before, looked := len(back.all()), len(seen.all())
	a.Stop()
	n.Config.StateDir = states[1]
	a = n.StartUnready()
	rpctest.WaitFor(t, "it to be found", func() bool { return len(back.all()) > before })
	rpctest.WaitFor(t, "lists to fail", failures(a.Generator.Status().Relist.Failures+3))
	n.Runtime.ClearRules()
	rpctest.WaitFor(t, "the truth", running(looked))
	n.Must(n.Runtime.ExitContainer(last, 0, ""))
	if err := <-done; err != nil || strings.Count(seen.line(), "exited") != 1 {
		t.Errorf("seen: %s; %v", seen.line(), err)
	}
}
