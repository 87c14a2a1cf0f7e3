package simruntime_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	sim "github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// story is a history without its times.
func story(rt *sim.Runtime) []sim.Transition {
	h := rt.History()
	for i := range h {
		h[i].At = time.Time{}
		h[i].CreatedAt, h[i].StartedAt, h[i].FinishedAt = 0, 0, 0
	}
	return h
}

func runSteps(t *testing.T, seed uint64, steps int) *sim.Runtime {
	t.Helper()
	rt := simtest.New(t, sim.Config{Seed: seed})
	w := must(sim.NewWorkload(rt, sim.WorkloadConfig{Seed: seed}))
	check(t, w.Fill())
	for range steps {
		must(w.Step())
	}
	return rt
}

func TestWorkloadIsDeterministicBySeed(t *testing.T) {
	one, two, other := story(runSteps(t, 1, 500)), story(runSteps(t, 1, 500)), story(runSteps(t, 2, 500))
	if diff := cmp.Diff(one, two); diff != "" {
		t.Errorf("same seed, two histories:\n%s", diff)
	}
	if cmp.Equal(one, other) {
		t.Error("two seeds, one history")
	}
}

// TestWorkloadDoesAllThatPodsDo checks that every kind of transition and exit
// occurs and that each object's history is one a runtime allows.
func TestWorkloadDoesAllThatPodsDo(t *testing.T) {
	rt := runSteps(t, 7, 3000)
	next := map[sim.Step][]sim.Step{
		"":              {sim.Created},
		sim.Created:     {sim.Ready, sim.Started, sim.StartFailed, sim.Removed},
		sim.Ready:       {sim.NotReady},
		sim.NotReady:    {sim.Removed},
		sim.Started:     {sim.Exited},
		sim.StartFailed: {sim.Removed},
		sim.Exited:      {sim.Removed},
	}
	at := map[string]sim.Step{}
	seen := map[any]int{}
	attempts := uint32(0)
	pods := map[string]bool{}
	for _, tr := range rt.History() {
		ok := false
		for _, s := range next[at[tr.ID]] {
			ok = ok || s == tr.Step
		}
		if !ok {
			t.Fatalf("%s %s went from %q to %q", tr.Kind, tr.ID, at[tr.ID], tr.Step)
		}
		at[tr.ID] = tr.Step
		seen[tr.Step]++
		if tr.Step == sim.Exited {
			seen[tr.ExitCode]++
			seen[tr.Reason]++
		}
		if tr.Kind == sim.Container {
			attempts = max(attempts, tr.Attempt)
		}
		pods[tr.PodUID] = true
		if tr.PodUID == "" || tr.Pod == "" || tr.Namespace == "" {
			t.Fatalf("incomplete: %+v", tr)
		}
	}
	for _, want := range []any{sim.Created, sim.Ready, sim.NotReady, sim.Started, sim.StartFailed, sim.Exited, sim.Removed,
		int32(0), int32(1), int32(7), int32(137), int32(143), int32(255), sim.ReasonOOMKilled, sim.ReasonCompleted, sim.ReasonError} {
		if seen[want] == 0 {
			t.Errorf("%v never occurred", want)
		}
	}
	if attempts < 3 || len(pods) < 20 {
		t.Errorf("at most attempt %d, %d pods", attempts, len(pods))
	}
	truth := rt.Truth()
	if n := len(truth.Sandboxes); n < 5 || n > sim.DefaultPods {
		t.Errorf("%d pods at the end", n)
	}
	ips := map[string]bool{}
	for _, sb := range truth.Sandboxes {
		if ip := sb.Network.Ip; ip != "" && ips[ip] {
			t.Errorf("two pods have %s", ip)
		} else {
			ips[ip] = true
		}
	}
}

// TestWorkloadInVirtualTime runs an hour over bufconn: the rate holds, and a
// subscriber is told exactly what happened.
func TestWorkloadInVirtualTime(t *testing.T) {
	inBubble(t, sim.Config{Seed: 5}, func(t *testing.T, rt *sim.Runtime, _ runtimeapi.RuntimeServiceClient, sub func() *reader) {
		r := sub()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		w := must(sim.NewWorkload(rt, sim.WorkloadConfig{Seed: 5}))
		check(t, w.Run(ctx))
		synctest.Wait()
		history := rt.History()
		if n := len(history); n < 2500 || n > 3600 {
			t.Errorf("%d transitions in ten minutes at 5 a second", n)
		}
		types := map[sim.Step]runtimeapi.ContainerEventType{
			sim.Created: created, sim.Ready: started, sim.Started: started,
			sim.NotReady: stopped, sim.Exited: stopped, sim.Removed: deleted,
		}
		for _, tr := range history {
			if tr.Silent {
				continue
			}
			ev := r.next()
			if ev.ContainerId != tr.ID || ev.ContainerEventType != types[tr.Step] {
				t.Fatalf("event %v %s for %+v", ev.ContainerEventType, ev.ContainerId, tr)
			}
			if took := time.Since(tr.At); took < 0 || ev.CreatedAt != tr.At.UnixNano() {
				t.Fatalf("event of %v created at %d", tr.At.UnixNano(), ev.CreatedAt)
			}
		}
		if rest := r.read(); rest != nil {
			t.Errorf("%d events too many", len(rest))
		}
	})
}

func TestWorkloadLivesThroughARestartAndAStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := simtest.New(t, sim.Config{Seed: 5})
		w := must(sim.NewWorkload(rt, sim.WorkloadConfig{Seed: 5, Rate: 20}))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		for range 5 {
			time.Sleep(time.Minute)
			rt.Down()
			before := len(rt.History())
			time.Sleep(10 * time.Second)
			for _, tr := range rt.History()[before:] {
				if tr.Step != sim.Exited {
					t.Errorf("while down: %+v", tr)
				}
			}
			rt.Up()
			for _, sb := range rt.Truth().Sandboxes[:3] {
				check(t, rt.RemovePodSandbox(sb.Id))
			}
		}
		check(t, <-done)
		if last := rt.History(); time.Since(last[len(last)-1].At) > 10*time.Second {
			t.Error("the workload had stopped long before the end")
		}
	})
}

// What a stranger removes, stops or starts while the node is being filled is no
// reason to give up either.
func TestFillLivesThroughAStranger(t *testing.T) {
	strangers := map[string]func(rt *sim.Runtime, sandbox string) error{
		"removes a pod": (*sim.Runtime).RemovePodSandbox,
		"stops a pod":   (*sim.Runtime).StopPodSandbox,
		"starts and removes containers": func(rt *sim.Runtime, sandbox string) (err error) {
			for i, c := range rt.Truth().Containers {
				if i%2 == 0 {
					err = errors.Join(err, rt.RemoveContainer(c.Status.Id))
				} else if c.Status.State == runtimeapi.ContainerState_CONTAINER_CREATED {
					err = errors.Join(err, rt.StartContainer(c.Status.Id))
				}
			}
			return err
		},
	}
	for name, interfere := range strangers {
		t.Run(name, func(t *testing.T) {
			rt := simtest.New(t, sim.Config{Seed: 5})
			w := must(sim.NewWorkload(rt, sim.WorkloadConfig{Seed: 5}))
			for range 20 { // half filled
				must(w.Step())
			}
			for _, sb := range rt.Truth().Sandboxes {
				check(t, interfere(rt, sb.Id))
			}
			check(t, w.Fill())
			for range 200 { // that of pods that were full is seen now
				must(w.Step())
			}
			if n := len(rt.Truth().Sandboxes); n < sim.DefaultPods/2 {
				t.Errorf("%d pods", n)
			}
		})
	}
}

func TestHistoryAndCallLogAreBounded(t *testing.T) {
	rt := simtest.New(t, sim.Config{Keep: 10})
	for i := range 50 {
		spec := podSpec
		spec.Attempt = uint32(i)
		must(rt.RunPodSandbox(spec))
	}
	h := rt.History()
	if len(h) > 10 || h[len(h)-1].Seq != 100 {
		t.Errorf("%d kept, last %d", len(h), h[len(h)-1].Seq)
	}
	if since := rt.HistorySince(97); len(since) != 3 || since[0].Seq != 98 {
		t.Errorf("since 97: %+v", since)
	}
	if since := rt.HistorySince(1000); len(since) != 0 {
		t.Errorf("since 1000: %+v", since)
	}

	conn := simtest.Bufconn(t, rt)
	for range 50 {
		must(runtimeapi.NewRuntimeServiceClient(conn).Version(t.Context(), &runtimeapi.VersionRequest{}))
	}
	if calls := rt.Calls(); len(calls) > 10 || calls[len(calls)-1].Seq != 50 || rt.CallStats("Version").Started != 50 {
		t.Errorf("%d calls kept of %d", len(calls), rt.CallStats("Version").Started)
	}
}

func TestWallClockIsTheRuntimesOwn(t *testing.T) {
	now := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	rt := simtest.New(t, sim.Config{Wall: func() time.Time { return now }})
	sandbox, app := pod(t, rt, "u1")
	now = now.Add(50 * 365 * 24 * time.Hour)
	check(t, rt.ExitContainer(app, 0, ""))
	if st := must(rt.ContainerStatus(app)); st.StartedAt != 0 || st.FinishedAt != now.UnixNano() {
		t.Errorf("status: %v", st)
	}
	if st := must(rt.PodSandboxStatus(sandbox)); st.CreatedAt != 0 {
		t.Errorf("status: %v", st)
	}
}
