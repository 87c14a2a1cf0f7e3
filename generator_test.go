package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agent is a generator that runs until stopped, and everything it told.
type agent struct {
	t      *testing.T
	g      *pleg.Generator
	cancel context.CancelFunc
	done   chan error
	sub    *pleg.Subscription
	events []pleg.Event
}

// startAgent runs a generator. It reads from the position given, nil from now.
func startAgent(t *testing.T, cfg pleg.Config, from *pleg.Position) *agent {
	t.Helper()
	if testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	g, err := pleg.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, g: g, done: make(chan error, 1)}
	if a.sub, err = g.Subscribe(from); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	go func() { a.done <- g.Run(ctx) }()
	t.Cleanup(cancel)
	return a
}

// stop ends the agent and returns what Run returned.
func (a *agent) stop() error {
	a.t.Helper()
	a.cancel()
	select {
	case err := <-a.done:
		return err
	case <-time.After(5 * time.Second):
		a.t.Fatal("Run did not return within 5 s of its context's end")
		return nil
	}
}

// read takes all events that are published by now.
func (a *agent) read() []pleg.Event {
	a.t.Helper()
	end := a.g.Position()
	for a.sub.Position().Seq < end.Seq {
		ev, err := a.sub.Next(context.Background())
		if err != nil {
			a.t.Fatal(err)
		}
		a.events = append(a.events, *ev)
	}
	return a.events
}

// settle relists until nothing is left to find out.
func (a *agent) settle() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for range 3 {
		if err := a.g.Relist(ctx); err != nil {
			a.t.Fatal(err)
		}
	}
	waitFor(a.t, "an empty reinspection queue", func() bool { return len(a.g.Status().Asks) == 0 })
}

func waitFor(t *testing.T, what string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !met(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// told returns what the journal says of each entity, in order.
func told(events []pleg.Event) map[string][]string {
	m := map[string][]string{}
	for _, ev := range events {
		id, word := ev.Container.ID, string(ev.Type)
		if id == "" {
			id = ev.SandboxID
		}
		if ev.Type == store.ContainerDied {
			word = "ContainerDied/unknown"
			if ev.ExitKnown {
				word = fmt.Sprintf("ContainerDied/%d", ev.ExitCode)
			}
		}
		if ev.Change != "" {
			word += "/" + string(ev.Change)
		}
		m[id] = append(m[id], word)
	}
	return m
}

// happened returns what the runtime's own history says of each entity.
func happened(history []simruntime.Transition) map[string][]string {
	words := map[simruntime.Step][2]store.EventType{
		simruntime.Created:     {store.SandboxCreated, store.ContainerCreated},
		simruntime.Ready:       {store.SandboxReady, ""},
		simruntime.NotReady:    {store.SandboxNotReady, ""},
		simruntime.Started:     {"", store.ContainerStarted},
		simruntime.StartFailed: {"", store.ContainerDied},
		simruntime.Exited:      {"", store.ContainerDied},
		simruntime.Removed:     {store.SandboxRemoved, store.ContainerRemoved},
	}
	m := map[string][]string{}
	for _, tr := range history {
		i := 0
		if tr.Kind == simruntime.Container {
			i = 1
		}
		word := string(words[tr.Step][i])
		if word == string(store.ContainerDied) {
			word = fmt.Sprintf("%s/%d", word, tr.ExitCode)
		}
		m[tr.ID] = append(m[tr.ID], word)
	}
	return m
}

// cached returns the state of every entity as readers see it.
func cached(g *pleg.Generator) map[string]string {
	m := map[string]string{}
	pods, _ := g.Pods()
	for _, p := range pods {
		for _, s := range p.Sandboxes {
			m[s.ID] = s.State
		}
		for _, c := range p.Containers {
			m[c.ID] = c.State
		}
	}
	return m
}

// truth returns the state of every entity as the runtime has it.
func truth(rt *simruntime.Runtime) map[string]string {
	m := map[string]string{}
	tr := rt.Truth()
	for _, s := range tr.Sandboxes {
		m[s.GetId()] = map[string]string{"SANDBOX_READY": "ready", "SANDBOX_NOTREADY": "notready"}[s.GetState().String()]
	}
	for _, c := range tr.Containers {
		m[c.Status.GetId()] = map[string]string{"CONTAINER_CREATED": "created", "CONTAINER_RUNNING": "running", "CONTAINER_EXITED": "exited"}[c.Status.GetState().String()]
	}
	return m
}

// churn plays a workload of so many transitions.
func churn(t *testing.T, rt *simruntime.Runtime, w *simruntime.Workload, transitions int, pause time.Duration) {
	t.Helper()
	for n := 0; n < transitions; time.Sleep(pause) {
		k, err := w.Step()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		n += max(k, 1)
	}
}

// TestHybridTellsEverything: with a stream that works, the journal is the
// runtime's history, entity by entity, and the cache is its state.
func TestHybridTellsEverything(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{Seed: 1})
	a := startAgent(t, pleg.Config{Endpoint: path, StateDir: t.TempDir(), RelistPeriod: 100 * time.Millisecond}, nil)
	waitFor(t, "the stream", func() bool { return a.g.Status().Stream.State == "up" })
	w, err := simruntime.NewWorkload(rt, simruntime.WorkloadConfig{Seed: 1, Pods: 10})
	if err != nil {
		t.Fatal(err)
	}
	churn(t, rt, w, 400, 2*time.Millisecond)
	a.settle()
	if diff := cmp.Diff(happened(rt.History()), told(a.read())); diff != "" {
		t.Errorf("journal differs from history (-happened +told):\n%s", diff)
	}
	if diff := cmp.Diff(truth(rt), cached(a.g)); diff != "" {
		t.Errorf("cache differs from the runtime (-truth +cached):\n%s", diff)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
}

// TestGenericConverges: relists alone may miss short lives, but tell nothing
// false, nothing twice, and end at the truth.
func TestGenericConverges(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{Seed: 2})
	a := startAgent(t, pleg.Config{Endpoint: path, Mode: pleg.ModeGeneric, RelistPeriod: 50 * time.Millisecond}, nil)
	w, err := simruntime.NewWorkload(rt, simruntime.WorkloadConfig{Seed: 2, Pods: 10})
	if err != nil {
		t.Fatal(err)
	}
	churn(t, rt, w, 300, 5*time.Millisecond)
	a.settle()
	all := happened(rt.History())
	for id, words := range told(a.read()) {
		sort := func(w []string) []string { return slices.DeleteFunc(slices.Clone(w), func(s string) bool { return s == "ContainerDied/unknown" }) }
		got, want := sort(words), slices.DeleteFunc(slices.Clone(all[id]), func(s string) bool { return !slices.Contains(words, s) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-happened +told)\n%s", id, diff)
		}
	}
	if diff := cmp.Diff(truth(rt), cached(a.g)); diff != "" {
		t.Errorf("cache differs from the runtime (-truth +cached):\n%s", diff)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
}
