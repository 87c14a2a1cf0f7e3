package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// watched is a runtime with an agent on it, and a proxy between them if calls are to be counted.
type watched struct {
	rt    *containerd
	proxy *proxy // nil if the agent calls the runtime itself
	dir   string
	*agent
}

// watch starts a runtime, a proxy and an agent that is ready.
func watch(t *testing.T, f flavour, flags ...string) *watched {
	t.Helper()
	needBinary(t)
	rt := startContainerd(t, f)
	w := &watched{rt: rt, proxy: startProxy(t, rt.socket), dir: workDir(t, "plegd")}
	w.restart(t, flags...)
	return w
}

// launch starts an agent on the state that the one before has left.
func (w *watched) launch(t *testing.T, flags ...string) {
	t.Helper()
	endpoint := w.rt.socket
	if w.proxy != nil {
		endpoint = w.proxy.socket
	}
	w.agent = startAgent(t, agentConfig{endpoint: endpoint, dir: w.dir, flags: flags})
}

// restart is launch that waits until the agent is ready.
func (w *watched) restart(t *testing.T, flags ...string) {
	t.Helper()
	w.launch(t, flags...)
	w.awaitReady(t)
}

// checkOrder checks what holds for every run: positions grow strictly within one epoch, a number is
// left out only under a SequenceSkipped that says so, and nothing is told from memory.
func checkOrder(t *testing.T, events []event) {
	t.Helper()
	for i, e := range events {
		if e.Volatile {
			t.Errorf("%v is volatile", e)
		}
		if i == 0 {
			continue
		}
		before := events[i-1]
		next := before.Seq + 1
		if e.Type == "SequenceSkipped" {
			if e.From != next || e.Seq != e.To+1 {
				t.Errorf("%v after %d", e, before.Seq)
			}
			continue
		}
		if e.Epoch != before.Epoch || e.Seq != next {
			t.Errorf("%s follows %s", e.position(), before.position())
		}
	}
}

// checkTime compares when something occurred with what the runtime says.
func checkTime(t *testing.T, e event, ns int64) {
	t.Helper()
	if e.OccurredAt == nil || e.OccurredAt.UnixNano() != ns {
		t.Errorf("%v occurred at %v, want %v", e, e.OccurredAt, time.Unix(0, ns).UTC())
	}
}

func TestLife(t *testing.T) {
	t.Parallel()
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			w := watch(t, f)
			p := w.rt.runPod(t, "life")
			id := p.run(t, "main", 3, "exit", "7", "1500ms")
			truth := w.rt.exited(t, id)
			w.awaitTrace(t, settle, id, "Created Started Died")
			p.stop(t)
			w.awaitTrace(t, settle, p.sandbox, "Created Ready NotReady")
			p.remove(t)
			w.awaitTrace(t, settle, id, wholeContainer)
			events := w.awaitTrace(t, settle, p.sandbox, wholeSandbox)
			checkOrder(t, events)

			bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.Pod.UID != p.uid || e.Pod.Namespace != namespace || e.Pod.Name != "life" || e.Pod.Labels["app"] != "life" {
					t.Errorf("%v: pod %+v", e, e.Pod)
				}
				// A relist comes when the creation is long over, so it only follows from what is seen.
				late := !f.stream && strings.HasSuffix(e.Type, "Created")
				if e.SandboxID != p.sandbox || e.Incarnation != 1 || e.Inferred && !late || e.Change != "" {
					t.Errorf("%v: sandbox %s, incarnation %d, inferred %v", e, e.SandboxID, e.Incarnation, e.Inferred)
				}
				if e.BootID != strings.TrimSpace(string(bootID)) {
					t.Errorf("%v: boot ID %s, want %s", e, e.BootID, bootID)
				}
				if e.ObservedAt.After(e.seen) || e.OccurredAt != nil && e.ObservedAt.Before(*e.OccurredAt) {
					t.Errorf("%v: occurred %v, observed %v, read %v", e, e.OccurredAt, e.ObservedAt, e.seen)
				}
				if e.ExitCode.present != (e.Type == "ContainerDied") {
					t.Errorf("%v: exit code %v", e, e.ExitCode)
				}
				if e.Container != nil && (e.Container.Name != "main" || e.Container.Attempt != 3 || e.Container.Image == "") {
					t.Errorf("%v: container %+v", e, *e.Container)
				}
			}
			created, _ := find(events, "ContainerCreated", id)
			started, _ := find(events, "ContainerStarted", id)
			died, _ := find(events, "ContainerDied", id)
			checkTime(t, created, truth.GetCreatedAt())
			checkTime(t, started, truth.GetStartedAt())
			checkTime(t, died, truth.GetFinishedAt())
			if died.ExitCode.String() != "7" || died.Reason != "Error" {
				t.Errorf("%v: reason %q; want 7 and Error", died, died.Reason)
			}
		})
	}
}

// A container that ends at once and is removed at once is there for a stream only.
func TestShortLives(t *testing.T) {
	t.Parallel()
	w := watch(t, containerd2)
	p := w.rt.runPod(t, "short")
	var ids []string
	for i := range 20 {
		id := p.run(t, fmt.Sprintf("c%d", i), 0, "exit", "3")
		w.rt.exited(t, id)
		w.rt.removeContainer(t, id)
		ids = append(ids, id)
	}
	for _, id := range ids {
		events := w.awaitTrace(t, settle, id, wholeContainer)
		if died, _ := find(events, "ContainerDied", id); died.ExitCode.String() != "3" || died.Inferred {
			t.Errorf("%v: want 3, not inferred", died)
		}
	}
	checkOrder(t, w.all())
}

// Without a stream a life between two relists is told as long as the runtime still lists its end.
func TestShortLivesWithoutStream(t *testing.T) {
	t.Parallel()
	w := watch(t, containerd16)
	p := w.rt.runPod(t, "short")
	for i := range 5 {
		id := p.run(t, fmt.Sprintf("c%d", i), 0, "exit", "3")
		truth := w.rt.exited(t, id)
		events := w.awaitTrace(t, settle, id, "Created Started Died")
		started, _ := find(events, "ContainerStarted", id)
		died, _ := find(events, "ContainerDied", id)
		checkTime(t, started, truth.GetStartedAt())
		checkTime(t, died, truth.GetFinishedAt())
		if died.ExitCode.String() != "3" {
			t.Errorf("%v: want 3", died)
		}
	}
	checkOrder(t, w.all())
}

// A container that ignores SIGTERM dies by SIGKILL.
func TestDeathBySignal(t *testing.T) {
	t.Parallel()
	w := watch(t, containerd2)
	p := w.rt.runPod(t, "signal")

	stubborn := p.run(t, "stubborn", 0, "stubborn")
	w.awaitTrace(t, settle, stubborn, "Created Started")
	w.rt.stopContainer(t, stubborn)
	events := w.awaitTrace(t, settle, stubborn, "Created Started Died")
	if died, _ := find(events, "ContainerDied", stubborn); died.ExitCode.String() != stopCode {
		t.Errorf("%v: want %s", died, stopCode)
	}

	p.stop(t)
	p.remove(t)
	w.awaitTrace(t, settle, stubborn, wholeContainer)
}

func TestPodIPIsKept(t *testing.T) {
	t.Parallel()
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			w := watch(t, f)
			p := w.rt.runPod(t, "ip")
			id := p.run(t, "main", 0, "pause")
			w.awaitTrace(t, settle, id, "Created Started")
			p.stop(t)
			w.awaitTrace(t, settle, p.sandbox, "Created Ready NotReady")
			if body := w.getAPI(t, "/v1/pods"); !strings.Contains(body, p.ip) {
				t.Errorf("after the end of the pod its IP %s is not in %s", p.ip, body)
			}
			p.remove(t)
			events := w.awaitTrace(t, settle, p.sandbox, wholeSandbox)
			// A list shows no IP; it is known when the sandbox is told to be ready.
			ready := slices.IndexFunc(events, func(e event) bool { return e.Type == "SandboxReady" })
			for _, e := range events[ready:] {
				if e.Pod.IP != p.ip {
					t.Errorf("%v: pod IP %q, want %q", e, e.Pod.IP, p.ip)
				}
			}
		})
	}
}

func TestManyPodsAtOnce(t *testing.T) {
	pods := scale(30, 110)
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			w := watch(t, f)
			type made struct {
				pod *pod
				id  string
			}
			all := make([]made, pods)
			var g errgroup.Group
			for i := range pods {
				g.Go(func() error {
					p, err := w.rt.tryRunPod(t.Context(), fmt.Sprintf("many-%d", i))
					if err != nil {
						return err
					}
					id, err := p.tryRun(t.Context(), "main", 0, "exit", fmt.Sprint(i), "500ms")
					all[i] = made{p, id}
					return err
				})
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			for i, m := range all {
				events := w.awaitTrace(t, settle, m.id, "Created Started Died")
				if died, _ := find(events, "ContainerDied", m.id); died.ExitCode.String() != fmt.Sprint(i) {
					t.Errorf("%v: want %d", died, i)
				}
			}
			for _, m := range all {
				m.pod.stop(t)
				m.pod.remove(t)
			}
			for _, m := range all {
				w.awaitTrace(t, settle, m.id, wholeContainer)
				w.awaitTrace(t, settle, m.pod.sandbox, wholeSandbox)
			}
			events := w.all()
			checkOrder(t, events)
			checkOnce(t, events)
			w.awaitTruth(t, w.rt)
			if want := pods * (len(strings.Fields(wholeContainer)) + len(strings.Fields(wholeSandbox))); len(events) != want {
				t.Errorf("%d events, want %d:\n%s", len(events), want, dump(slices.DeleteFunc(events, func(e event) bool { return e.Change == "" })))
			}
		})
	}
}
