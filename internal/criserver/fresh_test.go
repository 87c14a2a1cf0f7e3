package criserver

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
)

// doubtful is a source whose cache can't be relied on.
type doubtful struct{ Source }

func (doubtful) Health() pleg.Health { return pleg.Health{} }

// What is read through is not kept: each answer is the runtime's at that time.
func TestReadThroughIsNotKept(t *testing.T) {
	n := start(t, simruntime.Config{})
	sandbox, container := n.pod("a")
	n.quiet()
	cfg := Config{Socket: filepath.Join(t.TempDir(), "cri.sock"), Untrusted: ReadThrough}
	cfg.Source = func() (Source, string, error) { return doubtful{n.gen}, n.gen.Endpoint(), nil }
	server, err := New(cfg)
	n.must(err)
	inBackground(t, server.Run)
	cri, ctx := runtimeapi.NewRuntimeServiceClient(dial(t, cfg.Socket)), n.ctx()
	check := func(ready runtimeapi.PodSandboxState, running runtimeapi.ContainerState) {
		t.Helper()
		for _, verbose := range []bool{false, true} {
			s, err := cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox, Verbose: verbose})
			if err != nil || s.GetStatus().GetState() != ready {
				t.Errorf("sandbox, verbose %v: %v, %v, want %v", verbose, s.GetStatus().GetState(), err, ready)
			}
			c, err := cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: container, Verbose: verbose})
			if err != nil || c.GetStatus().GetState() != running {
				t.Errorf("container, verbose %v: %v, %v, want %v", verbose, c.GetStatus().GetState(), err, running)
			}
		}
		pods, err := cri.ListPodSandbox(ctx, nil)
		if err != nil || len(pods.GetItems()) != 1 || pods.GetItems()[0].GetState() != ready {
			t.Errorf("sandboxes: %v, %v, want %v", pods.GetItems(), err, ready)
		}
		list, err := cri.ListContainers(ctx, nil)
		if err != nil || len(list.GetContainers()) != 1 || list.GetContainers()[0].GetState() != running {
			t.Errorf("containers: %v, %v, want %v", list.GetContainers(), err, running)
		}
		for _, stream := range []func() ([]int32, error){
			func() (states []int32, err error) {
				s, err := cri.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{})
				items, err := drained(s, err, (*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes)
				for _, i := range items {
					states = append(states, int32(i.GetState()-ready))
				}
				return states, err
			},
			func() (states []int32, err error) {
				s, err := cri.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{})
				items, err := drained(s, err, (*runtimeapi.StreamContainersResponse).GetContainers)
				for _, i := range items {
					states = append(states, int32(i.GetState()-running))
				}
				return states, err
			},
		} {
			if off, err := stream(); err != nil || len(off) != 1 || off[0] != 0 {
				t.Errorf("streamed: %v, %v, want %v and %v", off, err, ready, running)
			}
		}
	}
	check(runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.ContainerState_CONTAINER_RUNNING)
	n.must(n.rt.ExitContainer(container, 1, "Error"))
	n.must(n.rt.StopPodSandbox(sandbox))
	check(runtimeapi.PodSandboxState_SANDBOX_NOTREADY, runtimeapi.ContainerState_CONTAINER_EXITED)
	if len(server.through.kept) != 0 {
		t.Errorf("%d answers are kept", len(server.through.kept))
	}
}

// Whoever asks while a call is under way isn't given its answer, which may be
// older than the question. Those who wait for a call to begin share it.
func TestReadThroughJoinsNoCallUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, end := newTestThrough(t)
		defer end()
		began := 0
		release := make(chan struct{})
		answers := make(chan int, 2*maxFlights)
		get := func() {
			go func() {
				v, err := ask(t.Context(), x, fromCache, "a", func(context.Context) (int, int, error) {
					began++
					mine := began
					<-release
					return mine, 1, nil
				})
				if err != nil {
					t.Error(err)
				}
				answers <- v
			}()
			synctest.Wait()
		}
		for i := range maxFlights { // each while the one before is under way
			if get(); began != i+1 {
				t.Fatalf("%d calls for %d questions", began, i+1)
			}
		}
		for range 5 { // wait for a place
			get()
		}
		if began != maxFlights {
			t.Errorf("%d calls at once", began)
		}
		close(release)
		synctest.Wait()
		got := map[int]int{}
		for range maxFlights + 5 {
			got[<-answers]++
		}
		for call := range maxFlights {
			if got[call+1] != 1 {
				t.Errorf("call %d answers %d", call+1, got[call+1])
			}
		}
		if got[maxFlights+1] != 5 || began != maxFlights+1 {
			t.Errorf("%d calls; the last answers %d of 5", began, got[maxFlights+1])
		}
	})
}
