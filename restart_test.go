package pleg_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

// pod makes a pod with one container that runs, and returns both ids.
func pod(t *testing.T, rt *simruntime.Runtime, name string) (sandbox, container string) {
	t.Helper()
	sandbox, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: name, UID: "uid-" + name, Labels: map[string]string{"app": name}})
	if err != nil {
		t.Fatal(err)
	}
	return sandbox, run(t, rt, sandbox, "app")
}

// run makes a container that runs.
func run(t *testing.T, rt *simruntime.Runtime, sandbox, name string) string {
	t.Helper()
	id, err := rt.CreateContainer(sandbox, simruntime.ContainerSpec{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	must(t, rt.StartContainer(id))
	return id
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// copyState copies a state directory as it is at this moment: what a crash
// leaves, for the file is written in transactions.
func copyState(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	src, err := os.Open(filepath.Join(from, store.FileName))
	must(t, err)
	defer src.Close()
	dst, err := os.OpenFile(filepath.Join(to, store.FileName), os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = io.Copy(dst, src)
	must(t, err)
	must(t, dst.Close())
	return to
}

// TestRestart: what happened while the agent was down, stopped cleanly or
// crashed, comes out by the first relist with the runtime's own codes and
// times, each once; what did not change causes no status call.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		crashed bool
		mode    pleg.Mode
	}{
		{"stopped, hybrid", false, pleg.ModeHybrid},
		{"stopped, generic", false, pleg.ModeGeneric},
		{"crashed, hybrid", true, pleg.ModeHybrid},
		{"crashed, evented", true, pleg.ModeEvented},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rt, path := simtest.Start(t, simruntime.Config{Seed: 7})
			_, still := pod(t, rt, "still")
			_, exits := pod(t, rt, "exits")
			sandbox, removed := pod(t, rt, "leaves")
			dir := t.TempDir()
			cfg := pleg.Config{Endpoint: path, StateDir: dir, Mode: tt.mode, RelistPeriod: 100 * time.Millisecond}
			a := startAgent(t, cfg, nil)
			waitFor(t, "the first relist", func() bool { return a.g.Health().Ready || tt.mode == pleg.ModeEvented && len(cached(a.g)) == 6 })
			a.settle()
			first := a.read()
			if tt.crashed {
				cfg.StateDir = copyState(t, dir)
			}
			at := a.g.Position()
			a.finish()

			must(t, rt.ExitContainer(exits, 3, ""))
			must(t, rt.StopContainer(removed, false))
			must(t, rt.RemoveContainer(removed))
			must(t, rt.StopPodSandbox(sandbox))
			must(t, rt.RemovePodSandbox(sandbox))
			_, fresh := pod(t, rt, "fresh")
			calls := len(rt.Calls())

			a = startAgent(t, cfg, &at)
			a.restoredUntilRelist(still)
			a.settle()
			second := a.read()

			all := told(append(first, second...))
			want := happened(rt.History())
			delete(all, "") // the skip of a crash
			// With which code a removed container had ended, only the events say
			// that the runtime has kept for whoever comes back.
			if word := all[removed][2]; word == "ContainerDied/unknown" {
				want[removed][2] = word
			}
			if diff := cmp.Diff(want, all); diff != "" {
				t.Errorf("journal of both runs (-happened +told):\n%s", diff)
			}
			for _, ev := range second {
				if ev.Container.ID == exits && ev.Type == store.ContainerDied {
					st, err := rt.ContainerStatus(exits)
					must(t, err)
					if ev.OccurredAt != st.GetFinishedAt() || !ev.ExitKnown || ev.ExitCode != 3 || ev.Reason != st.GetReason() {
						t.Errorf("death %+v, the runtime says %v", ev, st)
					}
				}
			}
			for _, c := range rt.Calls()[calls:] {
				if (c.Method == "ContainerStatus" || c.Method == "PodSandboxStatus") && c.ID != exits && c.ID != fresh {
					if p, err := a.g.Pod("uid-still"); err != nil || c.ID == still || c.ID == p.Sandboxes[0].ID {
						t.Errorf("%s of %s, which had not changed", c.Method, c.ID)
					}
				}
			}
			a.agree(rt)
			a.finish()
		})
	}
}

// restoredUntilRelist checks that a container is served at once, marked, and
// that the mark goes with the first relist.
func (a *agent) restoredUntilRelist(id string) {
	a.t.Helper()
	find := func() (restored, found bool) {
		pods, _ := a.g.Pods()
		for _, p := range pods {
			for _, c := range p.Containers {
				if c.ID == id {
					return c.Restored, true
				}
			}
		}
		return false, false
	}
	if restored, found := find(); !found || !restored && !a.g.Health().Ready {
		a.t.Errorf("before the first relist: found %v, marked as restored %v", found, restored)
	}
	waitFor(a.t, "the mark to go", func() bool { restored, _ := find(); return !restored })
}

// TestRestartAgainAndAgain: over many lives of the agent under churn, ended
// cleanly or by a crash, a reader that resumes where it was is told one
// history: nothing twice, no number with two contents (D2).
func TestRestartAgainAndAgain(t *testing.T) {
	t.Parallel()
	rt, path := simtest.Start(t, simruntime.Config{Seed: 8})
	w, err := simruntime.NewWorkload(rt, simruntime.WorkloadConfig{Seed: 8, Pods: 8})
	must(t, err)
	cfg := pleg.Config{Endpoint: path, StateDir: t.TempDir(), RelistPeriod: 50 * time.Millisecond}
	var at *pleg.Position
	var events []pleg.Event
	for life := range 6 {
		a := startAgent(t, cfg, at)
		churn(t, rt, w, 30, time.Millisecond)
		a.settle()
		if life == 5 {
			a.agree(rt)
		}
		crashed := copyState(t, cfg.StateDir)
		events = append(events, a.read()...)
		pos := a.sub.Position()
		at = &pos
		a.finish()
		if life%2 == 0 {
			cfg.StateDir = crashed
		}
		churn(t, rt, w, 20, 0) // nobody looks
	}
	content := map[pleg.Position]pleg.Event{}
	next := uint64(1)
	for _, ev := range events {
		if old, ok := content[ev.Position]; ok {
			t.Errorf("D2: %v twice: %+v and %+v", ev.Position, old, ev)
		}
		content[ev.Position] = ev
		if ev.Type == store.SequenceSkipped {
			next = ev.To + 1
		}
		if ev.Position.Seq != next {
			t.Errorf("number %d where %d was due", ev.Position.Seq, next)
		}
		next++
	}
	for id, words := range told(events) {
		seen := map[string]bool{}
		for _, word := range words {
			if seen[word] && id != "" {
				t.Errorf("%s: %v", id, words)
			}
			seen[word] = true
		}
	}
}

// TestRuntimeRestarts: a runtime that restarts under the agent causes no event
// for pods that did not change, and what happened meanwhile is told.
func TestRuntimeRestarts(t *testing.T) {
	t.Parallel()
	rt, path := simtest.Start(t, simruntime.Config{Seed: 9})
	for _, name := range []string{"a", "b", "c"} {
		pod(t, rt, name)
	}
	a := startAgent(t, pleg.Config{Endpoint: path, RelistPeriod: 50 * time.Millisecond, RelistPeriodMax: 500 * time.Millisecond}, nil)
	a.streamUp()
	a.settle()
	at := a.g.Position()
	for round := range 5 {
		before := rt.CallStats("GetContainerEvents").Started
		rt.Restart()
		waitFor(t, "a new stream", func() bool { return rt.CallStats("GetContainerEvents").Started > before })
		a.streamUp()
		if round == 2 {
			waitFor(t, "the period to stretch again", func() bool { return a.g.Status().Relist.State == "stretched" })
		}
	}
	a.settle()
	if now := a.g.Position(); now != at {
		t.Errorf("events after restarts that changed nothing: %+v", a.read()[at.Seq:])
	}
	rt.Down()
	waitFor(t, "the stream's end", func() bool { return a.g.Status().Stream.State == "down" })
	waitFor(t, "a failed list", func() bool { return a.g.Status().Relist.Failures > 2 })
	if len(cached(a.g)) != 6 || a.g.Position() != at {
		t.Error("a runtime that is away has no pods any more")
	}
	rt.Up()
	a.streamUp()
	if s := a.g.Status(); s.Stream.Reconnects < 5 {
		t.Errorf("%d reconnections counted", s.Stream.Reconnects)
	}
	pod(t, rt, "d")
	a.settle()
	a.toldHistory(rt)
	a.agree(rt)
	a.finish()
}
