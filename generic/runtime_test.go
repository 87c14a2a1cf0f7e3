package generic

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/store"
)

// Tests over gRPC, in real time on a unix socket unless said otherwise.

func dial(t *testing.T, path string, timeout time.Duration) *cri.Client {
	t.Helper()
	c, err := cri.Dial(cri.Config{Endpoint: path, RPCTimeout: timeout, Clock: sysclock.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// pods runs n pods of one running container each.
func pods(t *testing.T, rt *simruntime.Runtime, n int) (containers []string) {
	t.Helper()
	for i := range n {
		sb, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: fmt.Sprint("p", i), UID: fmt.Sprint("u", i)})
		if err != nil {
			t.Fatal(err)
		}
		id, err := rt.CreateContainer(sb, simruntime.ContainerSpec{Name: "app"})
		if err != nil {
			t.Fatal(err)
		}
		if err := rt.StartContainer(id); err != nil {
			t.Fatal(err)
		}
		containers = append(containers, id)
	}
	return containers
}

func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !met(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func statusOf(id string) arbiter.Action {
	return arbiter.Action{Kind: arbiter.ActStatus, ID: id, Entity: store.KindContainer, PodKey: "pod of " + id}
}

// In virtual time: every status call of as many pods as there are
// slots hangs, and the runtime ignores that nobody waits for it any more.
// Others go on, and what hangs doesn't pile up in the runtime.
func TestHungPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 2 * time.Second
		lis := bufconn.Listen(1 << 20)
		rt := simtest.New(t, simruntime.Config{})
		simtest.Serve(t, rt, lis)
		c, err := cri.Dial(cri.Config{
			Endpoint: "/sim", RPCTimeout: timeout, Clock: sysclock.New(),
			Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		all := pods(t, rt, 14)
		hung, well := all[:8], all[8:]
		isHung := map[string]bool{}
		for _, id := range hung {
			isHung[id] = true
		}
		simtest.Rule(t, rt, simruntime.Rule{
			Method: "ContainerStatus", Where: func(op simruntime.Op) bool { return isHung[op.ID] }, Delay: 3 * timeout, IgnoreCancel: true,
		})
		g := start(t, Config{Runtime: c, NoPeriod: true, RPCTimeout: timeout})
		attempts, asked := map[string]int{}, map[string]time.Time{}
		ask := func(id string) {
			asked[id] = time.Now()
			a := statusOf(id)
			a.Attempt = attempts[id]
			g.Do([]arbiter.Action{a})
		}
		for _, id := range all {
			ask(id)
		}
		const lasts, patience = 30 * time.Second, time.Second
		rounds, seen, late := map[string]int{}, 0, time.Duration(0)
		began := time.Now()
		for time.Since(began) < lasts {
			time.Sleep(10 * time.Millisecond)
			answers := g.sink.since(seen)
			seen += len(answers)
			for _, in := range answers {
				a := in.(*arbiter.StatusSeen)
				rounds[a.ID]++
				switch {
				case !isHung[a.ID] && a.Item == nil, isHung[a.ID] && !strings.Contains(a.Err, "no answer within"):
					t.Fatalf("%+v", a)
				case isHung[a.ID]:
					attempts[a.ID] = min(attempts[a.ID]+1, 3) // the core retries without end
				case time.Since(began) < 10*time.Second:
					late = max(late, time.Since(asked[a.ID]))
				case time.Since(asked[a.ID]) > DefaultPodGap+20*time.Millisecond:
					t.Fatalf("a pod that is well waited %v for what is known to hang", time.Since(asked[a.ID]))
				}
				ask(a.ID)
			}
		}
		if late > patience+DefaultPodGap+20*time.Millisecond {
			t.Errorf("a pod that is well waited %v at first", late)
		}
		for _, id := range well {
			if rounds[id] < 200 {
				t.Errorf("%s was answered %d times only", id, rounds[id])
			}
		}
		byID := map[string][]simruntime.Call{}
		for _, c := range rt.Calls() {
			byID[c.ID] = append(byID[c.ID], c)
		}
		for _, id := range hung {
			if n := simruntime.MaxOverlap(byID[id]); n > 1 {
				t.Errorf("%d calls for %s at once", n, id)
			}
			if rounds[id] < 3 {
				t.Errorf("hung %s was tried %d times only", id, rounds[id])
			}
		}
		g.stop()
		time.Sleep(time.Minute)
		if n := rt.CallStats("").InFlight; n != 0 {
			t.Errorf("%d calls never ended", n)
		}
	})
}

// Gone between list and status.
func TestGoneBetweenListAndStatus(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{})
	ids := pods(t, rt, 2)
	g := start(t, Config{Runtime: dial(t, path, 5*time.Second), NoPeriod: true})
	if err := g.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := rt.DropContainer(ids[0]); err != nil {
		t.Fatal(err)
	}
	g.Do([]arbiter.Action{statusOf(ids[0]), statusOf(ids[1])})
	eventually(t, "answers", func() bool { return len(got[*arbiter.StatusSeen](g.sink)) == 2 })
	for _, a := range got[*arbiter.StatusSeen](g.sink) {
		if a.NotFound != (a.ID == ids[0]) || (a.Item != nil) != (a.ID == ids[1]) || a.Err != "" {
			t.Errorf("%+v", a)
		}
	}
}

// A large list comes whole; one that is too large is an error, and tried
// again once per period.
func TestLargeLists(t *testing.T) {
	profile := simruntime.Containerd24
	profile.NoStreamingLists = true
	rt, path := simtest.Start(t, simruntime.Config{Profile: profile})
	pad := map[string]string{"pad": strings.Repeat("x", 2300)}
	sb, err := rt.RunPodSandbox(simruntime.PodSpec{Name: "cron", UID: "u"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4000 {
		rt.PutContainer(sb, &runtimeapi.ContainerStatus{Id: fmt.Sprint("c", i), Annotations: pad})
	}
	g := start(t, Config{Runtime: dial(t, path, 20*time.Second), RPCTimeout: 20 * time.Second, Base: 250 * time.Millisecond})
	eventually(t, "first list", func() bool { return len(got[*arbiter.ListSeen](g.sink)) > 0 })
	if n := len(got[*arbiter.ListSeen](g.sink)[0].Containers); n != 4000 {
		t.Errorf("%d containers", n)
	}
	h := simtest.Rule(t, rt, simruntime.Rule{Method: "ListContainers", Code: codes.ResourceExhausted})
	began := time.Now()
	eventually(t, "failed lists", func() bool { return len(got[*arbiter.ListFailed](g.sink)) >= 3 })
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("three failures in %v", took)
	}
	if f := got[*arbiter.ListFailed](g.sink)[0]; !strings.Contains(f.Err, "too large") {
		t.Errorf("%+v", f)
	}
	h.Remove()
	eventually(t, "recovery", func() bool { return g.Status().Failures == 0 })
}

// Asked to stop, it stops within a second in any state, and what hung then is
// not told as a failure.
func TestStopsInAnyState(t *testing.T) {
	for _, tc := range []struct {
		what string
		rule simruntime.Rule
	}{
		{"list hangs", simruntime.Rule{Method: "StreamContainers", Hang: true, IgnoreCancel: true}},
		{"everything hangs", simruntime.Rule{Hang: true, IgnoreCancel: true}},
		{"status hangs", simruntime.Rule{Method: "ContainerStatus", Hang: true, IgnoreCancel: true}},
		{"everything fails", simruntime.Rule{Code: codes.Internal}},
		{"nothing is wrong", simruntime.Rule{Method: "Version", Code: codes.Internal}},
	} {
		t.Run(tc.what, func(t *testing.T) {
			rt, path := simtest.Start(t, simruntime.Config{})
			ids := pods(t, rt, 20)
			simtest.Rule(t, rt, tc.rule)
			g := start(t, Config{Runtime: dial(t, path, time.Minute), RPCTimeout: time.Minute, Base: 5 * time.Millisecond})
			for _, id := range ids {
				g.Do([]arbiter.Action{statusOf(id), {Kind: arbiter.ActLook, ID: id, PodKey: id}, {Kind: arbiter.ActPod, ID: id, PodKey: id}})
			}
			g.Do([]arbiter.Action{{Kind: arbiter.ActList}})
			done := make(chan error)
			go func() { done <- g.Relist(context.Background()) }()
			time.Sleep(50 * time.Millisecond)
			g.stop()
			<-done
			for _, a := range got[*arbiter.StatusSeen](g.sink) {
				if strings.Contains(a.Err, "anceled") {
					t.Errorf("told its own end as a failure: %+v", a)
				}
			}
			for _, a := range got[*arbiter.ListFailed](g.sink) {
				if strings.Contains(a.Err, "anceled") {
					t.Errorf("told its own end as a failure: %+v", a)
				}
			}
			g.Do([]arbiter.Action{statusOf("late")}) // harmless
		})
	}
}

// The runtime goes away and comes back.
func TestRuntimeRestarts(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{})
	pods(t, rt, 3)
	g := start(t, Config{Runtime: dial(t, path, time.Second), RPCTimeout: time.Second, Base: 20 * time.Millisecond})
	for range 3 {
		eventually(t, "list", func() bool { s := g.Status(); return s.Failures == 0 && s.Succeeded.Tick != 0 })
		rt.Down()
		eventually(t, "failure", func() bool { return g.Status().Failures > 2 })
		f := got[*arbiter.ListFailed](g.sink)
		if last := f[len(f)-1]; !strings.Contains(last.Err, "runtime socket") {
			t.Errorf("%+v", last)
		}
		rt.Up()
		before := g.Status().Started.Tick
		eventually(t, "list again", func() bool { s := g.Status(); return s.Failures == 0 && s.Started.Tick > before })
	}
}
