package simruntime_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	sim "github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// A node that is full from the beginning: both kinds of lists answer, and nobody
// is told of anything. BenchmarkFullNode has 20,000 containers.
func TestFillIsLargeAndQuiet(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{StreamBatch: 2000})
	const pods, each = 100, 30
	check(t, rt.Fill(pods, each))
	conn := simtest.Dial(t, path)
	c := runtimeapi.NewRuntimeServiceClient(conn)

	sandboxes := must(c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})).Items
	containers := must(c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})).Containers
	_, streamed := listed(t, c, map[string]string{containers[0].Id: "x", containers[len(containers)-1].Id: "y"})
	if len(sandboxes) != pods || len(containers) != pods*each || streamed != " x y" {
		t.Errorf("%d sandboxes, %d containers, streamed %q", len(sandboxes), len(containers), streamed)
	}
	ids, uids := map[string]bool{}, map[string]bool{}
	for _, item := range containers {
		ids[item.Id] = true
		uids[item.Labels[sim.LabelPodUID]] = true
		if item.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Fatalf("filled with %v", item)
		}
	}
	if len(ids) != pods*each || len(uids) != pods {
		t.Errorf("%d ids, %d pods", len(ids), len(uids))
	}
	if st := rt.EventStats(); st.Sent != 0 {
		t.Errorf("events: %+v", st)
	}
	h := rt.History()
	if len(h) != 2*pods+2*pods*each || slices.ContainsFunc(h, func(tr sim.Transition) bool { return !tr.Silent }) {
		t.Errorf("%d transitions, or one that isn't silent", len(h))
	}

	// What was filled lives as anything else does.
	r := subscribe(t, conn)
	waitSubscribers(t, rt, 1)
	check(t, rt.ExitContainer(containers[7].Id, 1, ""))
	if ev := r.next(); ev.ContainerId != containers[7].Id || len(ev.ContainersStatuses) != each {
		t.Errorf("event: %v", ev)
	}
	if err := rt.Fill(1, -1); err == nil {
		t.Error("filled with less than nothing")
	}
	check(t, rt.Fill(1, 0))
	if n := len(rt.Truth().Sandboxes); n != pods+1 {
		t.Errorf("%d sandboxes", n)
	}
}

// A workload on a full node begins without events, and goes on as ever.
func TestWorkloadOnAFullNode(t *testing.T) {
	rt := simtest.New(t, sim.Config{Seed: 3})
	for _, pods := range []int{20, 20} { // the second finds the names of the first
		before := len(rt.History())
		w := must(sim.NewWorkload(rt, sim.WorkloadConfig{Seed: 3, Pods: pods, Containers: 5}))
		check(t, w.Fill())
		for _, tr := range rt.History()[before:] {
			if !tr.Silent {
				t.Fatalf("told of: %+v", tr)
			}
		}
		for range 300 {
			must(w.Step())
		}
	}
	if tr := rt.Truth(); len(tr.Sandboxes) < 35 || len(tr.Containers) < 5*35 {
		t.Errorf("%d sandboxes, %d containers", len(tr.Sandboxes), len(tr.Containers))
	}
	if st := rt.EventStats(); st.Sent == 0 {
		t.Errorf("no events at all: %+v", st)
	}
	for _, cfg := range []sim.WorkloadConfig{{Containers: -1}, {ExitAtOnce: 1.5}, {ExitAtOnce: -1}} {
		if _, err := sim.NewWorkload(rt, cfg); err == nil {
			t.Errorf("%+v: made", cfg)
		}
	}
}

// On every profile a workload makes a history that a runtime allows, with
// containers that exit at once; a frozen runtime's kubelet waits.
func TestWorkloadOnEveryProfile(t *testing.T) {
	for _, p := range []sim.Profile{sim.Containerd24, sim.Containerd17, sim.Containerd16, sim.CRIO, sim.CRIONoEvents} {
		inBubble(t, sim.Config{Seed: 7, Profile: p}, func(t *testing.T, rt *sim.Runtime, _ client, sub func() *reader) {
			w := must(sim.NewWorkload(rt, sim.WorkloadConfig{Seed: 7, ExitAtOnce: 0.3}))
			check(t, w.Fill())
			for range 1000 {
				must(w.Step())
			}
			seen := map[sim.Step]int{}
			for _, tr := range rt.History() {
				seen[tr.Step]++
			}
			for _, step := range []sim.Step{sim.Created, sim.Ready, sim.NotReady, sim.Started, sim.Exited, sim.Removed} {
				if seen[step] < 10 {
					t.Errorf("%s %s: %s occurred %d times", p.Name, p.Version, step, seen[step])
				}
			}
			rt.Freeze()
			defer rt.Thaw()
			if n := must(w.Step()); n != 0 {
				t.Errorf("a frozen runtime made %d transitions", n)
			}
		})
	}
}

// The runtime's clock steps back and forth: what it stamps shows it.
func TestStepClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clock sim.StepClock
		rt := simtest.New(t, sim.Config{Wall: clock.Now})
		created := func() time.Time {
			sandbox := must(rt.RunPodSandbox(podSpec))
			at := must(rt.PodSandboxStatus(sandbox)).CreatedAt
			check(t, rt.RemovePodSandbox(sandbox))
			return time.Unix(0, at)
		}
		if got := created(); !got.Equal(time.Now()) {
			t.Errorf("at first %v", got)
		}
		clock.Step(-time.Hour)
		time.Sleep(time.Minute)
		if got := time.Until(created()); got != -time.Hour {
			t.Errorf("off by %v, want an hour back", got)
		}
		clock.Step(3 * time.Hour)
		if got := time.Until(created()); got != 2*time.Hour {
			t.Errorf("off by %v, want 2 hours ahead", got)
		}
		clock.Set(time.Unix(0, 0))
		time.Sleep(time.Second)
		if got := created(); !got.Equal(time.Unix(1, 0)) {
			t.Errorf("set to 1970: %v", got)
		}
	})
}

// BenchmarkFullNode measures what a node of 500 pods with 40 containers each
// costs: to make it, and to list all of it over the socket.
func BenchmarkFullNode(b *testing.B) {
	full := func() *sim.Runtime {
		rt := simtest.New(b, sim.Config{})
		check(b, rt.Fill(500, 40))
		return rt
	}
	b.Run("fill", func(b *testing.B) {
		for b.Loop() {
			full()
		}
	})
	conn := simtest.Bufconn(b, full())
	c := runtimeapi.NewRuntimeServiceClient(conn)
	b.Run("list", func(b *testing.B) {
		for b.Loop() {
			list := must(c.ListContainers(b.Context(), &runtimeapi.ListContainersRequest{}))
			b.SetBytes(int64(proto.Size(list)))
			if len(list.Containers) != 20_000 {
				b.Fatalf("%d containers", len(list.Containers))
			}
		}
	})
}
