package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// gap is the time between the last two relists.
func gap(at []time.Time) time.Duration {
	if len(at) < 2 {
		return 0
	}
	return at[len(at)-1].Sub(at[len(at)-2])
}

// With a stream that works the period stretches; when the stream breaks it is short again.
func TestPeriodStretchesAndFallsBack(t *testing.T) {
	const base, most = 250 * time.Millisecond, 4 * time.Second
	w := watch(t, containerd2, "--relist-period", base.String(), "--relist-period-max", most.String())
	p := w.rt.runPod(t, "period")
	id := p.run(t, "main", 0, "pause")
	w.awaitTrace(t, settle, id, "Created Started")
	w.await(t, 30*time.Second, "the period stretches", func([]event) error {
		if g := gap(relists(w.proxy.since(0))); g < most*3/4 {
			return fmt.Errorf("last gap %v", g)
		}
		return nil
	})

	// Between two relists the stream tells what happens, with no wait for the next.
	short := p.run(t, "short", 0, "exit", "2")
	events := w.awaitTrace(t, settle, short, "Created Started Died")
	for _, eventType := range []string{"ContainerCreated", "ContainerStarted"} {
		if e, _ := find(events, eventType, short); e.Source != "stream" || e.seen.Sub(*e.OccurredAt) > most/2 {
			t.Errorf("%v came %v after the fact", e, e.seen.Sub(*e.OccurredAt))
		}
	}

	w.proxy.cut()
	w.proxy.mend(t)
	mark := w.proxy.mark()
	w.await(t, settle, "the period falls back", func([]event) error {
		at := relists(w.proxy.since(mark))
		if g := gap(at); len(at) < 3 || g > 4*base {
			return fmt.Errorf("%d relists, last gap %v", len(at), g)
		}
		return nil
	})
	w.await(t, 40*time.Second, "the period stretches again", func([]event) error {
		if g := gap(relists(w.proxy.since(mark))); g < most*3/4 {
			return fmt.Errorf("last gap %v", g)
		}
		return nil
	})
	checkOrder(t, w.all())
}

// Without a stream the period stays short, and the stream is asked for now and then only.
func TestFallbackWithoutStream(t *testing.T) {
	w := watch(t, containerd16)
	mark := w.proxy.mark()
	const watched = 8 * time.Second
	time.Sleep(watched)
	calls := w.proxy.since(mark)
	// The period counts from the end of a relist, so there are a few less.
	if n := len(relists(calls)); n < 6 || n > 9 {
		t.Errorf("%d relists in %v, want about 8", n, watched)
	}
	if n := count(calls)["GetContainerEvents"]; n > 8 {
		t.Errorf("asked %d times in %v for a stream that isn't there", n, watched)
	}
	if n := count(w.proxy.since(0))["GetContainerEvents"]; n == 0 {
		t.Error("never asked for a stream")
	}
}

// The bound: an idle hybrid agent makes two list calls a period, no status call and no commit.
func TestIdle(t *testing.T) {
	w := watch(t, containerd2, "--relist-period-max", "1s")
	p := w.rt.runPod(t, "idle")
	for i := range 3 {
		id := p.run(t, fmt.Sprintf("c%d", i), 0, "pause")
		w.awaitTrace(t, settle, id, "Created Started")
	}
	time.Sleep(3 * time.Second) // what the start has left to do
	before, mark := commits(w.metrics(t)), w.proxy.mark()
	time.Sleep(6 * time.Second)
	after, calls := commits(w.metrics(t)), count(w.proxy.since(mark))

	pods := calls["ListPodSandbox"] + calls["StreamPodSandboxes"]
	containers := calls["ListContainers"] + calls["StreamContainers"]
	if pods < 4 || pods > 7 || containers < pods-1 || containers > pods+1 {
		t.Errorf("%d lists of pods and %d of containers in 6 periods", pods, containers)
	}
	for _, list := range []string{"ListPodSandbox", "StreamPodSandboxes", "ListContainers", "StreamContainers"} {
		delete(calls, list)
	}
	if len(calls) > 0 {
		t.Errorf("an idle agent also called %v", calls)
	}
	if before != after {
		t.Errorf("an idle agent committed: %v, then %v", before, after)
	}
	if before == 0 {
		t.Error("no metric counts commits")
	}
}

// commits is the number of commits that the metrics tell.
func commits(series map[string]float64) float64 {
	n := 0.0
	for name, v := range series {
		if strings.HasPrefix(name, "plegd_commits_total") {
			n += v
		}
	}
	return n
}
