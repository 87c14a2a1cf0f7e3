package pleg_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

// become replaces the runtime under the agent, killed at once, by another
// version.
func become(t *testing.T, rt *simruntime.Runtime, p simruntime.Profile) {
	t.Helper()
	rt.Kill()
	must(t, rt.SetProfile(p))
	rt.Up()
}

// TestAnotherRuntimeIsRefusedBeforeItIsRecorded: another runtime takes over the
// socket, knows none of the pods, and takes its time to say who it is. What it
// lists is no news of the runtime that the state describes.
func TestAnotherRuntimeIsRefusedBeforeItIsRecorded(t *testing.T) {
	t.Parallel()
	for _, mode := range pleg.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			inBubble(t, simruntime.Config{Seed: 61}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
				cfg.Mode = mode
				sandbox, container := pod(t, rt, "web")
				a := startAgent(t, cfg, nil)
				time.Sleep(10 * time.Second)
				before := len(a.read())

				rt.Kill()
				must(t, rt.DropContainer(container))
				must(t, rt.DropSandbox(sandbox))
				must(t, rt.SetProfile(simruntime.CRIO))
				simtest.Rule(t, rt, simruntime.Rule{Method: "Version", Delay: 9 * time.Second})
				lists := rt.CallStats("StreamPodSandboxes").Started
				rt.Up()
				time.Sleep(8 * time.Second)
				synctest.Wait()
				if n := rt.CallStats("StreamPodSandboxes").Started - lists; n != 0 {
					t.Errorf("%d lists of a runtime that has not said who it is", n)
				}
				if err := <-a.done; !errors.Is(err, store.ErrForeign) {
					t.Errorf("Run ended with %v", err)
				}
				if n := rt.CallStats("GetContainerEvents").Started; mode != pleg.ModeGeneric && n != 1 {
					t.Errorf("%d subscriptions", n)
				}
				for _, ev := range a.read()[before:] {
					t.Errorf("told %s of %s%s", ev.Type, ev.SandboxID, ev.Container.ID)
				}
			})
		})
	}
}

// TestUpgradedAndDowngradedUnderTheAgent: each version is judged by itself. The
// older one's subscribers compete, so it is never subscribed to; the newer one
// is at once, has the trust of a new one, and its streaming lists are used.
func TestUpgradedAndDowngradedUnderTheAgent(t *testing.T) {
	t.Parallel()
	inBubble(t, simruntime.Config{Seed: 62}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
		_, lost := pod(t, rt, "web")
		_, kept := pod(t, rt, "db")
		a := startAgent(t, cfg, nil)
		time.Sleep(10 * time.Second)
		must(t, rt.DropContainer(lost)) // no event tells of it
		time.Sleep(time.Minute)
		if s := a.g.Status(); s.Relist.Strikes == 0 || s.Stream.State != "up" {
			t.Fatalf("after a miss: %+v, %+v", s.Relist, s.Stream)
		}

		subscribed := rt.CallStats("GetContainerEvents").Started
		slow := simtest.Rule(t, rt, simruntime.Rule{Method: "Version", Delay: 2 * time.Second})
		become(t, rt, simruntime.Containerd17)
		time.Sleep(10 * time.Minute)
		if n := rt.CallStats("GetContainerEvents").Started - subscribed; n != 0 {
			t.Errorf("subscribed %d times to one whose subscribers compete", n)
		}
		s := a.g.Status()
		if s.Runtime.Version != "v1.7.35" || s.Stream.State != "unsupported" || s.Relist.State != "polling" || s.Relist.Strikes != 0 {
			t.Errorf("older: %+v, %+v, %+v", s.Runtime, s.Stream, s.Relist)
		}
		if n := rt.CallStats("ListContainers").Started; n < 300 {
			t.Errorf("only %d unary lists in ten minutes", n)
		}
		must(t, rt.ExitContainer(kept, 3, ""))
		slow.Remove()

		unary := rt.CallStats("ListContainers").Started
		become(t, rt, simruntime.Containerd24)
		time.Sleep(15 * time.Second)
		if s := a.g.Status(); s.Stream.State != "up" || s.Relist.State == "polling" || s.Runtime.Version != "v2.4.2" {
			t.Errorf("newer: %+v, %+v", s.Stream, s.Relist)
		}
		time.Sleep(10 * time.Minute)
		if s := a.g.Status(); s.Relist.State != "stretched" || s.Relist.Strikes != 0 {
			t.Errorf("newer, after a while: %+v", s.Relist)
		}
		if n := rt.CallStats("ListContainers").Started - unary; n != 0 {
			t.Errorf("%d unary lists of one that streams them", n)
		}
		a.agree(rt)
		must(t, a.stop())
	})
}
