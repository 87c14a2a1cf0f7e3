package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// gaps are the times between relists.
func gaps(at []time.Time) []time.Duration {
	var out []time.Duration
	for i := 1; i < len(at); i++ {
		out = append(out, at[i].Sub(at[i-1]))
	}
	return out
}

// awaitRelists waits for n relists after a mark and returns all calls since then.
func (w *watched) awaitRelists(t *testing.T, mark, n int) (calls []call) {
	t.Helper()
	eventually(t, longWait, fmt.Sprintf("%d relists", n), func() error {
		calls = w.proxy.since(mark)
		if got := len(relists(calls)); got < n {
			return fmt.Errorf("there were %d", got)
		}
		return nil
	})
	return calls
}

// checkNotFaster checks that relists don't follow each other faster than the period, but for what
// the first and the last may be late.
func checkNotFaster(t *testing.T, at []time.Time, period time.Duration) {
	t.Helper()
	if took, least := at[len(at)-1].Sub(at[0]), time.Duration(len(at)-3)*period; took < least {
		t.Errorf("%d relists within %v, with a period of %v", len(at), took, period)
	}
}

// With a stream that works the period stretches; when the stream breaks it is short again.
func TestPeriodStretchesAndFallsBack(t *testing.T) {
	t.Parallel()
	const base, most = 250 * time.Millisecond, 4 * time.Second
	w := watch(t, containerd2, "--relist-period", base.String(), "--relist-period-max", most.String())
	p := w.rt.runPod(t, "period")
	id := p.run(t, "main", 0, "pause")
	w.awaitTrace(t, settle, id, "Created Started")
	stretched := func(mark int) func([]event) error {
		return func([]event) error {
			g := gaps(relists(w.proxy.since(mark)))
			if len(g) == 0 || g[len(g)-1] < most*3/4 {
				return fmt.Errorf("gaps %v", g)
			}
			return nil
		}
	}
	w.await(t, longWait, "the period stretches", stretched(0))

	// Between two relists the stream tells what happens, with no wait for the next: of several lives
	// one comes to fall between two relists.
	lives := 0
	eventually(t, longWait, "a life is told without a relist", func() error {
		lives++
		mark := w.proxy.mark()
		short := p.run(t, fmt.Sprintf("short-%d", lives), 0, "exit", "2")
		events := w.awaitTrace(t, settle, short, "Created Started Died")
		for _, eventType := range []string{"ContainerCreated", "ContainerStarted"} {
			if e, _ := find(events, eventType, short); e.Source != "stream" {
				return fmt.Errorf("%v was not told by the stream", e)
			}
		}
		if n := len(relists(w.proxy.since(mark))); n > 0 {
			return fmt.Errorf("%d relists meanwhile", n)
		}
		return nil
	})

	w.proxy.cut()
	w.proxy.mend(t)
	mark := w.proxy.mark()
	w.await(t, longWait, "the period falls back", func([]event) error {
		// A busy machine makes gaps longer, never a long period short.
		if g := gaps(relists(w.proxy.since(mark))); len(g) < 2 || slices.Min(g) > most/4 {
			return fmt.Errorf("gaps %v", g)
		}
		return nil
	})
	w.await(t, longWait, "the period stretches again", stretched(mark))
	checkOrder(t, w.all())
}

// Without a stream the period stays short, and the stream is asked for now and then only.
func TestFallbackWithoutStream(t *testing.T) {
	t.Parallel()
	const period = time.Second
	w := watch(t, containerd16)
	calls := w.awaitRelists(t, w.proxy.mark(), 12)
	at := relists(calls)
	checkNotFaster(t, at, period)
	// A period that stretches would have doubled by now, in all of the last gaps; a busy machine
	// makes only some of them long.
	if g := gaps(at); slices.Min(g[len(g)-4:]) > period*7/4 {
		t.Errorf("gaps %v, want about %v", g, period)
	}
	if n := count(calls)["GetContainerEvents"]; n > len(at) {
		t.Errorf("asked %d times in %d periods for a stream that isn't there", n, len(at))
	}
	if n := count(w.proxy.since(0))["GetContainerEvents"]; n == 0 {
		t.Error("never asked for a stream")
	}
}

// others counts the calls that are no part of a relist.
func others(calls []call) map[string]int {
	n := count(calls)
	for _, list := range []string{"ListPodSandbox", "StreamPodSandboxes", "ListContainers", "StreamContainers"} {
		delete(n, list)
	}
	return n
}

// The bound: an idle hybrid agent makes two list calls a period, no status call and no commit.
func TestIdle(t *testing.T) {
	const period = time.Second
	w := watch(t, containerd2, "--relist-period-max", period.String())
	p := w.rt.runPod(t, "idle")
	for i := range 3 {
		id := p.run(t, fmt.Sprintf("c%d", i), 0, "pause")
		w.awaitTrace(t, settle, id, "Created Started")
	}
	eventually(t, longWait, "what the start left to do is done", func() error {
		if n := others(w.awaitRelists(t, w.proxy.mark(), 3)); len(n) > 0 {
			return fmt.Errorf("called %v", n)
		}
		return nil
	})
	before, mark := commits(w.metrics(t)), w.proxy.mark()
	calls := w.awaitRelists(t, mark, 6)
	after := commits(w.metrics(t))

	checkNotFaster(t, relists(calls), period)
	n := count(calls)
	pods, containers := n["ListPodSandbox"]+n["StreamPodSandboxes"], n["ListContainers"]+n["StreamContainers"]
	if containers < pods-1 || containers > pods+1 {
		t.Errorf("%d lists of pods and %d of containers", pods, containers)
	}
	if n := others(calls); len(n) > 0 {
		t.Errorf("an idle agent also called %v", n)
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
