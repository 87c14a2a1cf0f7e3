package page

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// has is an expression: the list of events has one of this type and pod.
func has(kind, pod string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#event-list li")].some((e) => e.innerText.includes(%q) && e.innerText.includes(%q))`, kind, pod)
}

// rowOf is an expression: the row of a pod in the table of pods.
func rowOf(pod string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#pod-rows tr")].find((e) => e.cells[0].innerText.includes(%q))`, pod)
}

// positions are those of the events that are shown, the newest first.
func (p *tab) positions() []string {
	p.t.Helper()
	return value[[]string](p, `[...document.querySelectorAll("#event-list li")].map((e) => e.dataset.position)`)
}

// What was there is shown, and then what happens, without the page being loaded
// again.
func TestShowsAnEventWithoutReload(t *testing.T) {
	t.Parallel()
	a, rt := startAgent(t)
	runPod(t, rt, "web-1")
	p := open(t, a, desktop)
	p.await("health is ready", `document.getElementById("verdict").innerText.startsWith("ready")`)
	p.await("the stream is up", `document.getElementById("stream-state").innerText === "up"`)
	p.await("the agent is named", `document.getElementById("agent").innerText.includes("node-7 · containerd")`)
	p.await("what was there is told", has("ContainerStarted", "web-1"))
	p.await("the pod is there", rowOf("web-1"))
	p.await("both charts are drawn", `document.querySelectorAll(".chart svg path.line").length === 2`)

	id := runPod(t, rt, "web-2")
	p.await("the new pod's event is told", has("ContainerStarted", "web-2"))
	p.await("the new pod is there", rowOf("web-2"))
	if err := rt.ExitContainer(id, 7, "Error"); err != nil {
		t.Fatal(err)
	}
	p.await("the death is told", has("ContainerDied", "exit 7"))
	p.await("the pod shows it", rowOf("web-2")+`?.innerText.includes("nginx: exited 7")`)
	p.await("the latency of what the stream saw is known", `+document.querySelector("#latency-rows tr").cells[1].innerText > 0`)
	if !p.is("window.mark === 1") {
		t.Error("the page was loaded again")
	}
	p.noErrors("")

	// None is seen before it happens, whatever clock the runtime has.
	value[bool](p, `(import("./page/view.js").then(({ latency }) => {
		const at = (second) => "2026-01-02T15:04:0" + second + "Z";
		window.took = [1, 3].map((second) => latency({ occurred_at: at(second), observed_at: at(2) }));
	}), true)`)
	p.await("the latencies are known", "window.took")
	if took := value[[]float64](p, "took"); !slices.Equal(took, []float64{1, 0}) {
		t.Errorf("latencies %v", took)
	}
}

// The page goes on over a restart of the agent: it says that the agent is gone
// and that it is back, and misses nothing and repeats nothing.
func TestSurvivesAgentRestart(t *testing.T) {
	t.Parallel()
	a, rt := startAgent(t)
	runPod(t, rt, "before")
	p := open(t, a, desktop)
	p.await("what was there is told", has("ContainerStarted", "before"))
	a.restart(func() {
		p.await("the page says that the agent is gone", `document.getElementById("link").innerText.includes("trying again")`)
		runPod(t, rt, "meanwhile")
	})
	p.await("the page says that it is back", `document.getElementById("link").innerText.includes("nothing was missed")`)
	p.await("what happened meanwhile is told", has("ContainerStarted", "meanwhile"))
	runPod(t, rt, "after")
	p.await("what happened after is told", has("ContainerStarted", "after"))
	p.await("the pods are up to date", rowOf("after"))
	shown := map[string]bool{}
	for _, position := range p.positions() {
		if shown[position] {
			t.Errorf("%s is shown twice", position)
		}
		shown[position] = true
	}
	if !p.is("window.mark === 1") {
		t.Error("the page was loaded again")
	}
	p.noErrors("ERR_") // the browser tells of each connection that was refused
}

// A history that is gone is told: the page doesn't go on as if nothing had
// happened.
func TestTellsALostHistory(t *testing.T) {
	t.Parallel()
	a, rt := startAgent(t)
	runPod(t, rt, "before")
	p := open(t, a, desktop)
	p.await("what was there is told", has("ContainerStarted", "before"))
	a.restart(func() {
		if err := os.RemoveAll(filepath.Join(a.dir, "state")); err != nil {
			t.Fatal(err)
		}
	})
	p.await("the gap is told", `[...document.querySelectorAll("#event-list .note")].some((e) => e.innerText.includes("another epoch"))`)
	p.await("it isn't said that nothing was missed", `document.getElementById("link").innerText.endsWith("s, events are missing")`)
	runPod(t, rt, "after")
	p.await("what happened after is told", has("ContainerStarted", "after"))
}

// An agent, or a proxy before it, that refuses each position is not asked again and
// again without a pause.
func TestRefusedPositions(t *testing.T) {
	t.Parallel()
	a, _ := startAgent(t)
	p := open(t, a, desktop)
	value[bool](p, `(() => {
		const real = window.fetch;
		window.asked = [];
		window.fetch = (url, options) => {
			if (!url.startsWith("v1/events")) return real(url, options);
			asked.push(performance.now());
			return Promise.resolve(new Response(JSON.stringify({ error: "gone", oldest: "9f010203040506ab/1" }), { status: 410 }));
		};
		return true;
	})()`)
	p.set("pod", "web-1")
	p.await("it is asked again", "asked.length >= 3")
	for i, ms := range value[[]float64](p, "asked.slice(1).map((at, i) => at - asked[i])") {
		if ms < 400 {
			t.Errorf("try %d came %v ms after the one before it", i+2, ms)
		}
	}
	p.noErrors("")
}

// The filters that stand in the form count, however late the answer is that was
// waited for with those before.
func TestFiltersChangeWhileTheAgentIsSlow(t *testing.T) {
	t.Parallel()
	a, rt := startAgent(t)
	containers := []string{runPod(t, rt, "web-1"), runPod(t, rt, "db-1")}
	p := open(t, a, desktop)
	p.await("everything is told", has("ContainerStarted", "web-1")+" && "+has("ContainerStarted", "db-1"))
	value[bool](p, `(() => {
		const real = window.fetch;
		window.held = [];
		window.fetch = async (url, options) => {
			if (!url.startsWith("v1/status")) return real(url, options);
			await new Promise((resolve) => held.push(resolve));
			return real(url, { ...options, signal: undefined });
		};
		return true;
	})()`)
	p.await("the status is asked for", "held.length === 1") // which goes on by itself
	p.set("pod", "web-1")
	p.await("the first filter waits", "held.length === 2")
	p.set("pod", "db-1")
	p.await("the second waits", "held.length === 3")
	value[bool](p, "(held[2](), true)")
	p.await("the second is shown", "!("+has("", "web-1")+") && "+has("ContainerStarted", "db-1"))
	value[bool](p, "(held[1](), held[0](), true)")
	p.await("the status is shown again, and asked for", "held.length === 4")
	for _, id := range containers {
		if err := rt.ExitContainer(id, 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	p.await("what comes is of the second", has("ContainerDied", "db-1"))
	if p.is(has("", "web-1")) {
		t.Error("events of the first filter are shown")
	}
	p.noErrors("")
}

// Filters choose among events and pods, and one that is no use is named.
func TestFilters(t *testing.T) {
	t.Parallel()
	a, rt := startAgent(t)
	for _, name := range []string{"web-1", "web-2", "db-1"} {
		runPod(t, rt, name)
	}
	p := open(t, a, desktop)
	for _, name := range []string{"web-1", "web-2", "db-1"} {
		p.await("everything is told", has("ContainerStarted", name))
	}
	p.fill("pod", "web-1, db-1")
	p.await("others are gone", "!("+has("", "web-2")+")")
	p.await("the first is there", has("SandboxReady", "web-1"))
	p.await("the second is there", has("SandboxReady", "db-1"))
	p.await("the table has two pods", `document.querySelectorAll("#pod-rows tr").length === 2`)
	p.fill("type", "ContainerStarted")
	p.await("other types are gone", "!("+has("SandboxReady", "")+") && "+has("ContainerStarted", "db-1"))
	p.fill("selector", "app in")
	p.await("the mistake is named", `document.getElementById("filter-error").innerText.includes("selector")`)
	p.run(click(`#filters button[type=reset]`))
	p.await("all are back", has("SandboxReady", "web-2"))
	p.await("the mistake is gone", `document.getElementById("filter-error").innerText === ""`)
	p.noErrors("400") // the browser tells of the answer to the mistake
}

// Pausing keeps what is shown, and goes on with what came meanwhile.
func TestPause(t *testing.T) {
	t.Parallel()
	a, rt := startAgent(t)
	runPod(t, rt, "web-1")
	p := open(t, a, desktop)
	p.await("what was there is told", has("ContainerStarted", "web-1"))
	p.run(click("#pause"))
	runPod(t, rt, "web-2")
	p.await("events wait", `document.getElementById("events-count").innerText === "4 new"`)
	if p.is(has("", "web-2")) {
		t.Error("a new event is shown")
	}
	p.run(click("#pause"))
	p.await("it goes on", has("ContainerStarted", "web-2"))
}

// The page asks for the token, takes no other, and keeps it out of addresses.
func TestToken(t *testing.T) {
	t.Parallel()
	const token = "c0ffee00c0ffee00c0ffee00"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	a, rt := startAgent(t, "--http-token-file", file)
	runPod(t, rt, "web-1")
	p := openAt(t, a, desktop)
	p.await("the token is asked for", `document.getElementById("token").open`)
	p.shoot("token")
	p.enter("#token-input", "not the token")
	p.await("another is not taken", `document.getElementById("token").open && document.getElementById("token-error").innerText !== ""`)
	p.enter("#token-input", token)
	p.await("the page is live", `document.getElementById("link").innerText === "live"`)
	p.await("the pod is there", rowOf("web-1"))
	asked := value[[]string](p, `performance.getEntriesByType("resource").map((e) => e.name)`)
	if len(asked) == 0 || slices.ContainsFunc(asked, func(url string) bool { return strings.Contains(url, token) }) {
		t.Errorf("asked for %q", asked)
	}
	p.noErrors("401") // the browser tells of the answers before
}

// While nothing is known the page says why, and doesn't show an empty node.
func TestTellsWhyNothingIsKnown(t *testing.T) {
	t.Parallel()
	a, _ := startAgent(t, "--runtime-endpoint", "/nonexistent/cri.sock")
	p := openAt(t, a, desktop)
	p.await("it is not ready", `document.getElementById("verdict").innerText === "not ready"`)
	p.await("the reason is told", `document.getElementById("checks").innerText.includes("/nonexistent/cri.sock")`)
	p.await("the pods are not known", `document.getElementById("no-pods").innerText.startsWith("pods are not known yet")`)
	p.await("the title says so", `document.title.startsWith("not ready")`)
}

// A browser's own EventSource reads the events too, and goes on over a restart of
// the agent without help: nothing is missed and nothing comes twice.
func TestEventSource(t *testing.T) {
	t.Parallel()
	a, rt := startAgent(t)
	runPod(t, rt, "before")
	p := open(t, a, desktop)
	value[bool](p, `(() => {
		window.told = [];
		const source = new EventSource("v1/events?since=1h&type=ContainerStarted");
		source.addEventListener("ContainerStarted", (e) => told.push(e.lastEventId + " " + JSON.parse(e.data).pod.name));
		return true;
	})()`)
	p.await("what was there is told", `told.some((e) => e.endsWith(" before"))`)
	a.restart(func() { runPod(t, rt, "meanwhile") })
	p.await("what happened meanwhile is told", `told.some((e) => e.endsWith(" meanwhile"))`)
	runPod(t, rt, "after")
	p.await("what happened after is told", `told.some((e) => e.endsWith(" after"))`)
	if told := value[[]string](p, "told"); len(told) != 3 {
		t.Errorf("told %q", told)
	}
}
