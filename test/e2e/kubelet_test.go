package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// kubeletSettle bounds waits for the kubelet, which collects garbage once a minute and removes the
	// sandbox of a pod that is gone with it.
	kubeletSettle = 5 * time.Minute

	// measured is how long both generators are measured side by side.
	measured = time.Minute
)

// podEvents are the events about one pod of the kubelet's.
func podEvents(events []event, pod string) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool { return e.Pod.Name != pod+"-"+nodeName })
}

// attempts are the containers of one pod in the order in which they were told to be created.
func attempts(events []event, pod string) (ids []string) {
	for _, e := range podEvents(events, pod) {
		if e.Type == "ContainerCreated" {
			ids = append(ids, e.Container.ID)
		}
	}
	return ids
}

// sandboxes are those of one pod in the order in which they were told to be created.
func sandboxes(events []event, pod string) (all []event) {
	for _, e := range podEvents(events, pod) {
		if e.Type == "SandboxCreated" {
			all = append(all, e)
		}
	}
	return all
}

// awaitDeaths waits until a pod's container has died so often, and checks each attempt: numbered
// from 0, each told once and in order, with its code, and dead before the next is created.
func (w *watched) awaitDeaths(t *testing.T, pod string, n int, code string) {
	t.Helper()
	events := w.await(t, kubeletSettle, pod+" dies", func(events []event) error {
		ids := attempts(events, pod)
		if len(ids) < n {
			return fmt.Errorf("%d attempts of %d", len(ids), n)
		}
		if life := trace(events, ids[n-1]); !strings.HasPrefix(life, "Created Started Died") {
			return fmt.Errorf("attempt %d is %q", n-1, life)
		}
		return nil
	})
	for i, id := range attempts(events, pod)[:n] {
		created, _ := find(events, "ContainerCreated", id)
		died, ok := find(events, "ContainerDied", id)
		if created.Container.Attempt != uint32(i) || !ok || died.ExitCode.String() != code || died.Inferred {
			t.Errorf("attempt %d: %v, %v; want it to die with %s", i, created, died, code)
		}
		if life := trace(events, id); !strings.HasPrefix(wholeContainer, life) {
			t.Errorf("attempt %d of %s has the life %q", i, pod, life)
		}
		if i+1 < n {
			if next, _ := find(events, "ContainerCreated", attempts(events, pod)[i+1]); next.Seq < died.Seq {
				t.Errorf("%v before %v", next, died)
			}
		}
	}
}

// awaitRunning waits until the newest container of a pod runs, and returns its sandbox.
func (w *watched) awaitRunning(t *testing.T, pod string) (sandbox event, container string) {
	t.Helper()
	w.await(t, kubeletSettle, pod+" runs", func(events []event) error {
		boxes, ids := sandboxes(events, pod), attempts(events, pod)
		if len(boxes) == 0 || len(ids) == 0 {
			return fmt.Errorf("no container yet")
		}
		sandbox, container = boxes[len(boxes)-1], ids[len(ids)-1]
		created, _ := find(events, "ContainerCreated", container)
		if life := trace(events, container); life != "Created Started" || created.SandboxID != sandbox.SandboxID {
			return fmt.Errorf("the newest container is %q, in %s of %s", life, created.SandboxID, sandbox.SandboxID)
		}
		return nil
	})
	return sandbox, container
}

// restartCounts is what the kubelet itself says of the containers of its pods, by pod.
func (k *kubelet) restartCounts() (map[string]int, error) {
	code, body, err := k.get("/pods")
	if err != nil || code != http.StatusOK {
		return nil, fmt.Errorf("pods of the kubelet: %d, %w", code, err)
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				ContainerStatuses []struct{ RestartCount int }
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		return nil, fmt.Errorf("pods of the kubelet: %w", err)
	}
	counts := map[string]int{}
	for _, p := range list.Items {
		for _, c := range p.Status.ContainerStatuses {
			counts[strings.TrimSuffix(p.Metadata.Name, "-"+nodeName)] = c.RestartCount
		}
	}
	return counts, nil
}

// A real kubelet makes the pods. The parts build on each other: one node, one kubelet, one agent.
func TestKubelet(t *testing.T) {
	needBinary(t)
	if _, err := os.Stat(kubeletBinary()); err != nil {
		t.Skip("no kubelet, make e2e-kubelet builds it: ", err)
	}
	w := &watched{rt: startContainerd(t, containerd2), dir: workDir(t, "plegd")}
	w.restart(t, "--relist-period-max", "1m")
	k := startKubelet(t, w.rt)

	pause := []string{"pause"}
	k.apply(t, staticPod{name: "steady", args: pause, grace: 1})
	k.apply(t, staticPod{name: "crash", args: []string{"exit", "3", "300ms"}, grace: 1})
	k.apply(t, staticPod{name: "sick", args: []string{"stubborn"}, grace: 1, sick: true})
	k.apply(t, staticPod{name: "changed", args: pause, grace: 1, label: "one"})
	k.apply(t, staticPod{name: "graceful", args: []string{"exit", "0", "24h"}, grace: 30})

	part := func(name string, f func(*testing.T)) {
		if !t.Failed() { // what comes after would only repeat the failure
			t.Run(name, f)
		}
	}
	part("crash loop", func(t *testing.T) { w.awaitDeaths(t, "crash", 5, "3") })
	part("liveness probe kills", func(t *testing.T) { w.awaitDeaths(t, "sick", 3, stopCode) })
	part("attempts are the kubelet's", func(t *testing.T) {
		for _, pod := range []string{"crash", "sick"} {
			w.await(t, kubeletSettle, pod+" has as many attempts", func(events []event) error {
				counts, err := k.restartCounts()
				if err != nil {
					return err
				}
				if n := len(attempts(w.all(), pod)); n == 0 || counts[pod] != n-1 {
					return fmt.Errorf("%d attempts told, the kubelet counts %d restarts", n, counts[pod])
				}
				return nil
			})
		}
	})
	part("static pod changed and changed back", func(t *testing.T) { kubeletChanges(t, w, k) })
	part("sandbox replaced", func(t *testing.T) { kubeletReplacesSandbox(t, w) })
	part("graceful deletion", func(t *testing.T) {
		sandbox, id := w.awaitRunning(t, "graceful")
		k.withdraw(t, "graceful")
		w.awaitTrace(t, kubeletSettle, sandbox.SandboxID, wholeSandbox)
		events := w.awaitTrace(t, kubeletSettle, id, wholeContainer)
		died, _ := find(events, "ContainerDied", id)
		if notReady, _ := find(events, "SandboxNotReady", sandbox.SandboxID); died.ExitCode.String() != "143" || notReady.Seq < died.Seq {
			t.Errorf("%v, %v: want 143, by SIGTERM, and then the sandbox", died, notReady)
		}
	})
	part("kubelet restarted", func(t *testing.T) {
		sandbox, id := w.awaitRunning(t, "steady")
		before := len(podEvents(w.all(), "steady"))
		crashed := len(attempts(w.all(), "crash"))
		k.kill(t)
		k.start(t)
		w.await(t, kubeletSettle, "the kubelet goes on", func(events []event) error {
			if n := len(attempts(events, "crash")); n < crashed+3 {
				return fmt.Errorf("%d attempts, %d before", n, crashed)
			}
			return nil
		})
		// A container that the kubelet had created when it was killed is never started.
		events := w.all()
		last := -1
		for _, id := range attempts(events, "crash") {
			created, _ := find(events, "ContainerCreated", id)
			if died, ok := find(events, "ContainerDied", id); int(created.Container.Attempt) <= last || ok && died.ExitCode.String() != "3" {
				t.Errorf("%v, attempt %d after %d; %v", created, created.Container.Attempt, last, died)
			}
			last = int(created.Container.Attempt)
		}
		if steady := podEvents(w.all(), "steady"); len(steady) != before {
			t.Errorf("the pod that ran on (%s, %s) was told of:\n%s", sandbox.SandboxID, id, dump(steady[before:]))
		}
	})
	part("dead containers collected", func(t *testing.T) {
		first := attempts(w.all(), "crash")[0]
		w.awaitTrace(t, kubeletSettle, first, wholeContainer)
	})
	part("both generators, busy", func(t *testing.T) { compareGenerators(t, w, k) })
	part("all as the runtime has it", func(t *testing.T) {
		for _, pod := range []string{"crash", "sick"} {
			k.withdraw(t, pod)
		}
		w.await(t, kubeletSettle, "pods are gone", func(events []event) error {
			for _, pod := range []string{"crash", "sick"} {
				for _, id := range attempts(events, pod) {
					if life := trace(events, id); life != wholeContainer && life != "Created Removed" {
						return fmt.Errorf("%s of %s is %q", id, pod, life)
					}
				}
			}
			return nil
		})
		w.awaitTruth(t, w.rt)
		events := w.awaitTold(t)
		checkOrder(t, events)
		checkOnce(t, events)
		t.Logf("%d events, %d attempts of crash, %d of sick", len(events), len(attempts(events, "crash")), len(attempts(events, "sick")))
	})
	part("both generators, idle", func(t *testing.T) { compareGenerators(t, w, k) })
}

// kubeletChanges changes a manifest and changes it back. A static pod's UID is made of its manifest,
// so it changes and comes back, with another sandbox.
func kubeletChanges(t *testing.T, w *watched, k *kubelet) {
	first, id := w.awaitRunning(t, "changed")
	change := func(label string) (sandbox event) {
		k.apply(t, staticPod{name: "changed", args: []string{"pause"}, grace: 1, label: label})
		before := len(sandboxes(w.all(), "changed"))
		w.await(t, kubeletSettle, "a new sandbox", func(events []event) error {
			if n := len(sandboxes(events, "changed")); n == before {
				return fmt.Errorf("still %d", n)
			}
			return nil
		})
		sandbox, _ = w.awaitRunning(t, "changed")
		return sandbox
	}
	second := change("two")
	w.awaitTrace(t, kubeletSettle, id, wholeContainer)
	events := w.awaitTrace(t, kubeletSettle, first.SandboxID, wholeSandbox)
	if died, _ := find(events, "ContainerDied", id); died.ExitCode.String() != "0" {
		t.Errorf("%v: want 0, by SIGTERM", died)
	}
	if second.Pod.UID == first.Pod.UID {
		t.Errorf("the changed pod has the UID %s as before", first.Pod.UID)
	}
	third := change("one")
	if third.Pod.UID != first.Pod.UID || third.SandboxID == first.SandboxID {
		t.Errorf("changed back: UID %s in sandbox %s, was %s in %s", third.Pod.UID, third.SandboxID, first.Pod.UID, first.SandboxID)
	}
	w.awaitTrace(t, kubeletSettle, second.SandboxID, wholeSandbox)
	if life := trace(w.all(), first.SandboxID); life != wholeSandbox {
		t.Errorf("the sandbox that had this UID first has the life %q", life)
	}
}

// kubeletReplacesSandbox stops a sandbox under the kubelet, which makes another of the same pod.
func kubeletReplacesSandbox(t *testing.T, w *watched) {
	sandbox, id := w.awaitRunning(t, "steady")
	if _, err := w.rt.cri.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox.SandboxID}); err != nil {
		t.Fatal(err)
	}
	w.await(t, kubeletSettle, "a new sandbox", func(events []event) error {
		if n := len(sandboxes(events, "steady")); n < 2 {
			return fmt.Errorf("still %d", n)
		}
		return nil
	})
	next, nextID := w.awaitRunning(t, "steady")
	events := w.all()
	if died, _ := find(events, "ContainerDied", id); died.ExitCode.String() != stopCode {
		t.Errorf("%v: want %s", died, stopCode)
	}
	if next.Pod.UID != sandbox.Pod.UID || next.SandboxID == sandbox.SandboxID || nextID == id {
		t.Errorf("after %v came %v, of pod %s", sandbox, next, next.Pod.UID)
	}
	// The kubelet may first have tried to restart the container in the sandbox that is gone.
	for i, attempt := range attempts(events, "steady") {
		if created, _ := find(events, "ContainerCreated", attempt); created.Container.Attempt != uint32(i) {
			t.Errorf("%v is attempt %d, want %d", created, created.Container.Attempt, i)
		}
	}
	if notReady, ok := find(events, "SandboxNotReady", sandbox.SandboxID); !ok || notReady.Seq > next.Seq {
		t.Errorf("%v after %v", notReady, next)
	}
}

// compareGenerators prints the kubelet's generator and plegd side by side over a minute. The
// kubelet's calls are also those of its garbage collection, its probes and its own syncing.
func compareGenerators(t *testing.T, w *watched, k *kubelet) {
	kubeletBefore, before, start := k.metrics(t), w.metrics(t), time.Now()
	time.Sleep(measured)
	kubeletAfter, after := k.metrics(t), w.metrics(t)
	minutes := time.Since(start).Minutes()

	rate := func(before, after map[string]float64, prefix string, parts ...string) float64 {
		sum := 0.0
		for name, v := range after {
			matches := strings.HasPrefix(name, prefix)
			for _, part := range parts {
				matches = matches && strings.Contains(name, part)
			}
			if matches {
				sum += v - before[name]
			}
		}
		return sum / minutes
	}
	ours := func(prefix string, parts ...string) float64 { return rate(before, after, prefix, parts...) }
	theirs := func(prefix string, parts ...string) float64 {
		return rate(kubeletBefore, kubeletAfter, prefix, parts...)
	}
	operations := func(kind string) float64 {
		return theirs("kubelet_runtime_operations_total", `"`+kind+`"`)
	}
	calls := func(methods ...string) (sum float64) {
		for _, m := range methods {
			sum += ours("plegd_runtime_calls_total", `"`+m+`"`)
		}
		return sum
	}
	relists, theirRelists := ours("plegd_relists_total"), theirs("kubelet_pleg_relist_duration_seconds_count")
	mean := func(seconds, n float64) string {
		if n == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f ms", 1000*seconds/n)
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, kubelet, plegd float64) {
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t\n", name, kubelet, plegd)
	}
	fmt.Fprintln(table, "a minute\tkubelet\tplegd\t")
	row("relists", theirRelists, relists)
	row("relists of one pod", theirs("kubelet_pleg_pod_relist_duration_seconds_count"), ours("plegd_inspections_total", `"look"`)+ours("plegd_inspections_total", `"pod"`))
	row("lists of sandboxes", operations("list_podsandbox"), calls("ListPodSandbox", "StreamPodSandboxes"))
	row("lists of containers", operations("list_containers"), calls("ListContainers", "StreamContainers"))
	row("sandbox statuses", operations("podsandbox_status"), calls("PodSandboxStatus"))
	row("container statuses", operations("container_status"), calls("ContainerStatus"))
	row("events", theirs("kubelet_pleg_discard_events"), ours("plegd_events_total"))
	fmt.Fprintf(table, "mean relist\t%s\t%s\t\n", mean(theirs("kubelet_pleg_relist_duration_seconds_sum"), theirRelists), mean(ours("plegd_relist_duration_seconds_sum"), relists))
	_ = table.Flush() // to memory
	t.Logf("kubelet_pleg_* beside plegd_*, over %v (the kubelet's events are those it threw away):\n%s", time.Since(start).Round(time.Second), b.String())
	if theirRelists == 0 {
		t.Error("the kubelet's generator did not relist at all")
	}
}
