package pleg_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// streamUp waits until the event stream is open.
func (a *agent) streamUp() {
	a.t.Helper()
	waitFor(a.t, "the stream", func() bool { return a.g.Status().Stream.State == "up" })
}

// finish stops the agent, which must have gone well.
func (a *agent) finish() {
	a.t.Helper()
	if err := a.stop(); err != nil {
		a.t.Fatal(err)
	}
}

// workload plays so many transitions.
func workload(t *testing.T, rt *simruntime.Runtime, seed uint64, transitions int, pause time.Duration) {
	t.Helper()
	w, err := simruntime.NewWorkload(rt, simruntime.WorkloadConfig{Seed: seed, Pods: 10})
	if err != nil {
		t.Fatal(err)
	}
	churn(t, rt, w, transitions, pause)
}

// TestHybridTellsEverything: with a stream that works, the journal is the
// runtime's history, entity by entity, and the cache is its state. Lives that
// fit between two relists are told as well.
func TestHybridTellsEverything(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{Seed: 1})
	a := startAgent(t, pleg.Config{Endpoint: path, StateDir: t.TempDir(), RelistPeriod: 100 * time.Millisecond}, nil)
	a.streamUp()
	workload(t, rt, 1, 400, 2*time.Millisecond)
	a.settle()
	a.toldHistory(rt)
	a.agree(rt)
	a.finish()
}

// TestGenericConverges: relists alone may miss short lives, but tell nothing
// false, nothing twice, and end at the truth. The stream is never asked for.
func TestGenericConverges(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{Seed: 2})
	a := startAgent(t, pleg.Config{Endpoint: path, Mode: pleg.ModeGeneric, RelistPeriod: 50 * time.Millisecond}, nil)
	workload(t, rt, 2, 300, 5*time.Millisecond)
	a.settle()
	a.toldNothingFalse(rt)
	a.agree(rt)
	if n := rt.CallStats("GetContainerEvents").Started; n != 0 {
		t.Errorf("the stream was asked for %d times", n)
	}
	a.finish()
}

// TestEventedTellsEverything: one covering relist after the subscription, then
// the stream alone, with the inspections that it leads to.
func TestEventedTellsEverything(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{Seed: 3})
	a := startAgent(t, pleg.Config{Endpoint: path, Mode: pleg.ModeEvented, RelistPeriod: 50 * time.Millisecond}, nil)
	a.streamUp()
	waitFor(t, "the covering relist", func() bool { return a.g.Health().Ready })
	workload(t, rt, 3, 300, 2*time.Millisecond)
	waitFor(t, "an empty reinspection queue", func() bool { s := a.g.Status(); return len(s.Asks) == 0 && s.Queued == 0 })
	lists := 0
	for _, c := range rt.Calls() {
		if c.Method == "StreamPodSandboxes" && c.ID == "" {
			lists++
		}
	}
	if lists > 10 {
		t.Errorf("%d full lists in a mode that has no periodic ones", lists)
	}
	a.settle()
	a.toldHistory(rt)
	a.agree(rt)
	a.finish()
}

// TestEventedNeedsAStream: without one, mode evented is an error that says so.
func TestEventedNeedsAStream(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]simruntime.Rule{
		"unimplemented": {Method: "GetContainerEvents", Code: codes.Unimplemented},
		"ends at once":  {Method: "GetContainerEvents", EOF: true},
	} {
		t.Run(name, func(t *testing.T) {
			rt, path := simtest.Start(t, simruntime.Config{})
			simtest.Rule(t, rt, rule)
			a := startAgent(t, pleg.Config{Endpoint: path, Mode: pleg.ModeEvented}, nil)
			select {
			case err := <-a.done:
				if !errors.Is(err, pleg.ErrUnsupported) {
					t.Errorf("run: %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the agent goes on without a stream")
			}
		})
	}
}

// TestHybridFallsBack: without a stream the hybrid is a generic one at the
// base period, and healthy; when there is one, after a restart of the runtime,
// it is used.
func TestHybridFallsBack(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]simruntime.Rule{
		"unimplemented": {Method: "GetContainerEvents", Code: codes.Unimplemented},
		"ends at once":  {Method: "GetContainerEvents", EOF: true},
	} {
		t.Run(name, func(t *testing.T) {
			rt, path := simtest.Start(t, simruntime.Config{Seed: 4})
			handle := simtest.Rule(t, rt, rule)
			a := startAgent(t, pleg.Config{Endpoint: path, RelistPeriod: 50 * time.Millisecond, RelistPeriodMax: time.Second}, nil)
			waitFor(t, "the verdict on the stream", func() bool { return a.g.Status().Stream.State == "unsupported" })
			workload(t, rt, 4, 100, 5*time.Millisecond)
			a.settle()
			a.toldNothingFalse(rt)
			a.agree(rt)
			if s := a.g.Status(); !s.Health.Ready || s.Relist.State != "polling" || s.Relist.Period != 0.05 {
				t.Errorf("health %+v, relist %+v", s.Health, s.Relist)
			}
			if n := rt.CallStats("GetContainerEvents").Started; n > 5 {
				t.Errorf("the stream was tried %d times", n)
			}
			handle.Remove()
			rt.Restart()
			a.streamUp()
			waitFor(t, "a stretched period", func() bool { return a.g.Status().Relist.State == "stretched" })
			a.finish()
		})
	}
}

// TestStateOfAnotherRuntime: a state directory that describes another runtime is
// refused before anything of this one is read into it.
func TestStateOfAnotherRuntime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rt, path := simtest.Start(t, simruntime.Config{Seed: 5})
	a := startAgent(t, pleg.Config{Endpoint: path, StateDir: dir}, nil)
	waitFor(t, "the first relist", func() bool { return a.g.Health().Ready })
	a.finish()
	rt.Down()

	other := simtest.New(t, simruntime.Config{Seed: 6, Profile: simruntime.Profile{Name: "cri-o", Version: "1.36.0"}})
	if _, err := other.RunPodSandbox(simruntime.PodSpec{Name: "p", UID: "u"}); err != nil {
		t.Fatal(err)
	}
	lis, err := simruntime.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- other.Serve(ctx, lis) }()

	a = startAgent(t, pleg.Config{Endpoint: path, StateDir: dir}, nil)
	err = <-a.done
	if err == nil || !strings.Contains(err.Error(), "cri-o") || !strings.Contains(err.Error(), "containerd") {
		t.Errorf("run: %v", err)
	}
	if asked := other.Methods(); len(asked) != 1 || asked[0] != "Version" {
		t.Errorf("it was asked for %v", asked)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	rt.Up()
	a = startAgent(t, pleg.Config{Endpoint: path, StateDir: dir}, nil)
	waitFor(t, "the first relist", func() bool { return a.g.Health().Ready })
	if pods, at := a.g.Pods(); len(pods) != 0 || at.Seq != 0 {
		t.Errorf("%d pods at %v", len(pods), at)
	}
	a.finish()
}
