package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// stopCode is what a container exits with that is killed, as stopping its pod does.
const stopCode = "137"

// TestAgentRestart stops or kills the agent, lets pods end, go and come meanwhile, and expects the
// next agent to tell it all, once.
func TestAgentRestart(t *testing.T) {
	for _, f := range flavours {
		for _, end := range []struct {
			name  string
			agent func(*watched, *testing.T)
			clean bool
		}{
			{"SIGTERM", func(w *watched, t *testing.T) { w.terminate(t) }, true},
			{"SIGKILL", func(w *watched, t *testing.T) { w.kill(t) }, false},
		} {
			t.Run(f.name+"/"+end.name, func(t *testing.T) {
				t.Parallel() // they wait more than they compute
				w := watch(t, f)
				steady := w.rt.runPod(t, "steady")
				runs := steady.run(t, "runs", 0, "pause")
				ended := steady.run(t, "ended", 0, "exit", "4")
				other := w.rt.runPod(t, "other")
				exits := other.run(t, "exits", 0, "exit", "9", "4s")
				doomed := w.rt.runPod(t, "doomed")
				goes := doomed.run(t, "goes", 0, "pause")
				w.awaitTrace(t, settle, ended, "Created Started Died")
				for _, id := range []string{runs, exits, goes} {
					w.awaitTrace(t, settle, id, "Created Started")
				}

				end.agent(w, t)
				first := w.all()
				late := w.rt.runPod(t, "late")
				comes := late.run(t, "comes", 0, "exit", "5")
				outliveSubscriber(t, late)
				doomed.stop(t)
				doomed.remove(t)
				truthExits, truthComes := w.rt.exited(t, exits), w.rt.exited(t, comes)

				mark := w.proxy.mark()
				w.restart(t)
				w.awaitTrace(t, settle, exits, "Died")
				awaitGone(t, w, goes, f)
				w.awaitTrace(t, settle, doomed.sandbox, "NotReady Removed")
				w.awaitTrace(t, settle, comes, "Created Started Died")
				w.awaitTrace(t, settle, late.sandbox, "Created Ready")
				time.Sleep(2 * time.Second) // for what should not come
				second := w.all()

				checkDied(t, second, exits, "9", truthExits.GetFinishedAt())
				checkDied(t, second, comes, "5", truthComes.GetFinishedAt())
				for _, id := range []string{runs, ended, steady.sandbox, other.sandbox} {
					if got := trace(second, id); got != "" {
						t.Errorf("nothing happened to %s, but plegd told %q", id, got)
					}
					if n := asked(w.proxy.since(mark), id); n != 0 {
						t.Errorf("nothing happened to %s, but plegd asked for its status %d times", id, n)
					}
				}
				if skipped := second[0].Type == "SequenceSkipped"; skipped == end.clean {
					t.Errorf("first event after the restart is %v", second[0])
				}
				checkOrder(t, append(slices.Clone(first), second...))
				checkReplay(t, w, append(first, second...))
			})
		}
	}
}

// outliveSubscriber makes events until containerd 2.x has noticed that its subscriber is gone: it
// loses the first event to one that is, and each further one with a chance of a half (its eventq
// picks at random between "closed" and "room in the buffer"). The next agent finds by listing what
// these were about; an event that it can't find so would make the test a matter of luck.
func outliveSubscriber(t *testing.T, p *pod) {
	t.Helper()
	for i := range 5 {
		p.rt.exited(t, p.run(t, fmt.Sprintf("sacrifice-%d", i), 0, "exit", "0"))
	}
}

// checkDied checks the end of a container that the runtime still knows.
func checkDied(t *testing.T, events []event, id, code string, finished int64) {
	t.Helper()
	died, _ := find(events, "ContainerDied", id)
	checkTime(t, died, finished)
	if died.ExitCode.String() != code || died.Inferred {
		t.Errorf("%v: want %s, not inferred", died, code)
	}
}

// awaitGone waits for the end of a container that was removed while no agent ran. A runtime with a
// stream keeps its events for the next subscriber, so the code comes out: with the death, or, if two
// relists were faster than the stream, as an amendment.
func awaitGone(t *testing.T, w *watched, id string, f flavour) {
	t.Helper()
	w.await(t, settle, "end of what was removed", func(events []event) error {
		life := trace(events, id)
		died, _ := find(events, "ContainerDied", id)
		changed, _ := find(events, "ContainerChanged", id)
		lost := life == "Died Removed" && died.ExitCode.String() == "null" && died.Inferred
		switch {
		case !f.stream && lost:
			return nil
		case !f.stream:
		case life == "Died Removed" && died.ExitCode.String() == stopCode && !died.Inferred:
			return nil
		case life == "Died Removed Changed" && changed.Change == "amended" && changed.ExitCode.String() == stopCode:
			return nil
		}
		return fmt.Errorf("life is %q, exit code %v, inferred %v", life, died.ExitCode, died.Inferred)
	})
}

// checkReplay restarts the agent once more, to replay everything after the first event of all runs,
// and expects the same entries again.
func checkReplay(t *testing.T, w *watched, told []event) {
	t.Helper()
	w.terminate(t)
	w.restart(t, "--since", told[0].position())
	want := told[1:]
	got := w.await(t, settle, "replay", func(events []event) error {
		if len(events) < len(want) {
			return fmt.Errorf("%d events of %d", len(events), len(want))
		}
		return nil
	})
	checkOrder(t, append([]event{told[0]}, got...))
	for i, e := range want {
		if g := got[i]; g.position() != e.position() || g.String() != e.String() {
			t.Errorf("replayed %v, was told as %v", g, e)
		}
	}
}

// What did not change costs two lists after a restart, and no status call at all.
func TestRestartOfUnchangedNode(t *testing.T) {
	t.Parallel()
	w := watch(t, containerd2)
	var ids []string
	for i := range 5 {
		ids = append(ids, w.rt.runPod(t, fmt.Sprintf("unchanged-%d", i)).run(t, "main", 0, "pause"))
	}
	for _, id := range ids {
		w.awaitTrace(t, settle, id, "Created Started")
	}
	w.kill(t)
	mark := w.proxy.mark()
	w.restart(t)
	time.Sleep(3 * time.Second)
	for _, method := range []string{"ContainerStatus", "PodSandboxStatus"} {
		if n := count(w.proxy.since(mark))[method]; n != 0 {
			t.Errorf("%d calls of %s, want none", n, method)
		}
	}
	for _, e := range w.all() {
		if e.Type != "SequenceSkipped" {
			t.Errorf("told %v of an unchanged node", e)
		}
	}
}

// The runtime dies under the agent. Pods live on, one of their containers ends; a failed call is no
// witness of a removal.
func TestRuntimeRestart(t *testing.T) {
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel() // they wait more than they compute
			w := watch(t, f, "--relist-threshold", "2s")
			p := w.rt.runPod(t, "survivor")
			runs := p.run(t, "runs", 0, "pause")
			exits := p.run(t, "exits", 0, "exit", "6", "4s")
			w.awaitTrace(t, settle, runs, "Created Started")
			w.awaitTrace(t, settle, exits, "Created Started")

			w.rt.kill(t)
			w.await(t, settle, "plegd says that the runtime is gone", func([]event) error {
				code, body, err := w.get("/readyz?verbose")
				if err == nil && code == http.StatusOK {
					err = fmt.Errorf("readyz is %d\n%s", code, body)
				}
				return err
			})
			if code, _, err := w.get("/livez"); err != nil || code != http.StatusOK {
				t.Errorf("livez without a runtime: %d, %v", code, err)
			}
			time.Sleep(4 * time.Second) // the container ends
			if got := trace(w.all(), exits) + trace(w.all(), p.sandbox); got != "Created StartedCreated Ready" {
				t.Errorf("without a runtime plegd told %q", got)
			}

			w.rt.start(t)
			w.awaitReady(t)
			truth := w.rt.exited(t, exits)
			events := w.awaitTrace(t, settle, exits, "Created Started Died")
			// containerd 2.x itself forgets the code: it says 255 and the time of its own start.
			checkDied(t, events, exits, fmt.Sprint(truth.GetExitCode()), truth.GetFinishedAt())

			// The new connection is as good as the old one.
			after := p.run(t, "after", 0, "exit", "8")
			w.awaitTrace(t, settle, after, "Created Started Died")
			if got := trace(w.all(), runs); got != "Created Started" {
				t.Errorf("the container that ran on has the life %q", got)
			}
			checkOrder(t, w.all())
		})
	}
}
