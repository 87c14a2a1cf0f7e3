package pleg_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// TestHalfLoadedRuntimeRemovesNothing: a runtime that was restarted answers,
// for a second, without one of its running containers. No call has failed in
// between, so the new connection is all there is to go by (rule O4).
func TestHalfLoadedRuntimeRemovesNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []pleg.Mode{pleg.ModeHybrid, pleg.ModeGeneric} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			inBubble(t, simruntime.Config{Seed: 31}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
				cfg.Mode = mode
				_, missing := pod(t, rt, "missing")
				pod(t, rt, "other")
				a := startAgent(t, cfg, nil)
				time.Sleep(10 * time.Second)
				a.settle()
				before := len(a.read())

				short := simtest.Rule(t, rt, simruntime.Rule{Method: "ListContainers", Edit: func(m proto.Message) {
					if l, ok := m.(*runtimeapi.ListContainersResponse); ok {
						l.Containers = slices.DeleteFunc(l.Containers, func(c *runtimeapi.Container) bool { return c.GetId() == missing })
					}
				}})
				stream := simtest.Rule(t, rt, simruntime.Rule{Method: "StreamContainers", Edit: func(m proto.Message) {
					if l, ok := m.(*runtimeapi.StreamContainersResponse); ok {
						l.Containers = slices.DeleteFunc(l.Containers, func(c *runtimeapi.Container) bool { return c.GetId() == missing })
					}
				}})
				rt.Restart()
				time.Sleep(900 * time.Millisecond)
				short.Remove()
				stream.Remove()
				time.Sleep(30 * time.Second)
				for _, ev := range a.read()[before:] {
					t.Errorf("told %s of %s", ev.Type, ev.Container.ID)
				}
				a.agree(rt)
				must(t, a.stop())
			})
		})
	}
}

// TestPodNewer: every reader gets an answer of its own time, also beside
// another's, after a look that failed, and when the pod is gone by then.
func TestPodNewer(t *testing.T) {
	t.Parallel()
	inBubble(t, simruntime.Config{Seed: 32}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
		sandbox, container := pod(t, rt, "web")
		a := startAgent(t, cfg, nil)
		time.Sleep(10 * time.Minute) // the period is stretched: no list comes to help
		pods, _ := a.g.Pods()
		key := pods[0].Key
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()

		slow := simtest.Rule(t, rt, simruntime.Rule{Method: "ListPodSandbox", Delay: time.Second})
		slowStream := simtest.Rule(t, rt, simruntime.Rule{Method: "StreamPodSandboxes", Delay: time.Second})
		first := make(chan error, 1)
		go func() { _, err := a.g.PodNewer(ctx, key); first <- err }()
		time.Sleep(500 * time.Millisecond) // the first reader's look is in flight
		if _, err := a.g.PodNewer(ctx, key); err != nil {
			t.Errorf("second reader: %v", err)
		}
		if err := <-first; err != nil {
			t.Errorf("first reader: %v", err)
		}
		slow.Remove()
		slowStream.Remove()

		fail := simtest.Rule(t, rt, simruntime.Rule{Method: "ListContainers", Code: 14, Times: 1})
		failStream := simtest.Rule(t, rt, simruntime.Rule{Method: "StreamContainers", Code: 14, Times: 1})
		if _, err := a.g.PodNewer(ctx, key); err != nil {
			t.Errorf("after a failed look: %v", err)
		}
		fail.Remove()
		failStream.Remove()

		must(t, rt.EditContainer(container, func(c *runtimeapi.ContainerStatus) {
			c.State, c.FinishedAt, c.ExitCode, c.Reason = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().UnixNano(), 3, "Error"
		}))
		p, err := a.g.PodNewer(ctx, key)
		if err != nil || p.Containers[0].ExitCode == nil || *p.Containers[0].ExitCode != 3 {
			t.Errorf("after an exit that no event told: %+v, %v", p, err)
		}

		must(t, rt.DropContainer(container))
		must(t, rt.DropSandbox(sandbox))
		if p, err := a.g.PodNewer(ctx, key); err == nil {
			t.Errorf("the pod is gone: %+v", p)
		}
		must(t, a.stop())
	})
}

// TestEverythingReplaced: a list that lacks everything is doubted, and when a
// second one agrees, what sandboxes and containers lacked is settled together,
// containers first (rule O4).
func TestEverythingReplaced(t *testing.T) {
	t.Parallel()
	inBubble(t, simruntime.Config{Seed: 33}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
		cfg.StateDir = t.TempDir()
		gone := map[string]string{} // sandbox → container
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			sandbox, container := pod(t, rt, name)
			gone[sandbox] = container
		}
		a := startAgent(t, cfg, nil)
		time.Sleep(5 * time.Second)
		must(t, a.stop())

		rt.Down()
		for sandbox, container := range gone {
			must(t, rt.DropContainer(container))
			must(t, rt.DropSandbox(sandbox))
		}
		rt.Up()
		for _, method := range []string{"ListContainers", "StreamContainers"} {
			simtest.Rule(t, rt, simruntime.Rule{Method: method, Delay: 20 * time.Millisecond})
		}
		a = startAgent(t, cfg, nil)
		time.Sleep(5 * time.Second)
		removed := map[string]uint64{}
		for _, ev := range a.read() {
			if ev.Type == "SandboxRemoved" || ev.Type == "ContainerRemoved" {
				removed[ev.EntityID()] = ev.Position.Seq
			}
		}
		for sandbox, container := range gone {
			if removed[container] == 0 || removed[container] > removed[sandbox] {
				t.Errorf("container removed at %d, its sandbox at %d", removed[container], removed[sandbox])
			}
		}
		must(t, a.stop())
	})
}

// TestSnapshotIsNotAheadOfItsEvents: a start that a list saw is told with the
// answer of the inspection; while that hangs, the snapshot doesn't show it
// either, since whoever goes on from its position would hear of it twice.
func TestSnapshotIsNotAheadOfItsEvents(t *testing.T) {
	t.Parallel()
	inBubble(t, simruntime.Config{Seed: 34}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
		cfg.Mode = pleg.ModeGeneric
		cfg.RPCTimeout = time.Minute
		simtest.Rule(t, rt, simruntime.Rule{Method: "ContainerStatus", Delay: 5 * time.Second})
		_, container := pod(t, rt, "slow")
		a := startAgent(t, cfg, nil)
		for range 20 {
			time.Sleep(500 * time.Millisecond)
			shown := cached(a.g)[container]
			told := told(a.read())[container]
			if running := slices.Contains(told, "ContainerStarted"); running != (shown == "running") {
				t.Fatalf("shown %q, told %v", shown, told)
			}
		}
		a.agree(rt)
		must(t, a.stop())
	})
}
