package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// become replaces the runtime by another version with the same socket, root and state: pods live on.
func (c *containerd) become(t testing.TB, f flavour) {
	t.Helper()
	c.stop(t)
	c.flavour = f
	if err := c.writeConfig(); err != nil {
		t.Fatal(err)
	}
	c.start(t)
}

// awaitStream waits until /readyz?verbose says of the stream what is wanted.
func (w *watched) awaitStream(t *testing.T, want string) {
	t.Helper()
	w.await(t, settle, "state of the stream", func([]event) error {
		_, body, err := w.get("/readyz?verbose")
		if err != nil {
			return err
		}
		for line := range strings.Lines(body) {
			if strings.Contains(line, "]stream ") && strings.Contains(line, want) {
				return nil
			}
		}
		return fmt.Errorf("want %q in\n%s", want, body)
	})
}

// What /readyz?verbose says of the streams of the three.
const (
	streamUp      = "[+]stream ok"
	streamMissing = "the runtime has no GetContainerEvents"
	streamRefused = "gives each event to one subscriber only"
)

// lives runs a container to its end and checks that it is told: the agent is of use.
func (w *watched) lives(t *testing.T, p *pod, name, code string) (id string) {
	t.Helper()
	id = p.run(t, name, 0, "exit", code)
	truth := w.rt.exited(t, id)
	events := w.awaitTrace(t, settle, id, "Created Started Died")
	checkDied(t, events, id, code, truth.GetFinishedAt())
	return id
}

// The runtime is upgraded and downgraded under a running agent. Pods survive, and what does is told
// once. The stream is taken up when the new version has one, and left alone when it may not be read.
func TestRuntimeUpgradeAndDowngrade(t *testing.T) {
	t.Parallel()
	needBinary(t)
	// No proxy: it would keep the connection open that the upgrade breaks.
	w := &watched{rt: startContainerd(t, containerd16), dir: workDir(t, "plegd")}
	w.restart(t)
	w.awaitStream(t, streamMissing)
	old := w.rt.runPod(t, "old")
	stays := old.run(t, "stays", 0, "pause")
	ended := w.lives(t, old, "ended", "4")
	w.awaitTrace(t, settle, stays, "Created Started")

	w.rt.become(t, containerd2)
	w.awaitReady(t)
	w.awaitStream(t, streamUp)
	new2 := w.rt.runPod(t, "by-2")
	byStream := w.lives(t, new2, "main", "5")
	eventually(t, longWait, "the stream tells", func() error {
		if e, _ := find(w.all(), "ContainerDied", byStream); e.Source == "stream" {
			return nil
		}
		byStream = w.lives(t, new2, fmt.Sprintf("again-%d", time.Now().UnixNano()), "5") // a relist was faster
		return fmt.Errorf("a relist was always faster")
	})
	w.awaitTruth(t, w.rt)

	w.rt.become(t, containerd17)
	w.awaitReady(t)
	w.awaitStream(t, streamRefused)
	new17 := w.rt.runPod(t, "by-1.7")
	crictl := crictlEvents(t, w.rt)
	awaitCount(t, crictl, 2)
	makeEvents(t, new17, 5)
	awaitCount(t, crictl, 2+5*eventsOf) // plegd takes none of them
	w.lives(t, new17, "main", "6")
	w.awaitTruth(t, w.rt)

	for _, p := range []*pod{old, new2, new17} {
		p.stop(t)
		p.remove(t)
		w.awaitTrace(t, settle, p.sandbox, wholeSandbox)
	}
	for _, id := range []string{stays, ended, byStream} {
		w.awaitTrace(t, settle, id, wholeContainer)
	}
	w.awaitTruth(t, w.rt)
	told := w.awaitTold(t)
	checkOrder(t, told)
	checkOnce(t, told)
}
