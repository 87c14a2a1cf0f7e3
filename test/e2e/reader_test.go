package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// flood makes more events than a pipe holds (64 KiB, about 100 events) and returns the last container.
func flood(t *testing.T, rt *containerd) (last string) {
	t.Helper()
	p := rt.runPod(t, "flood")
	for i := range 60 {
		last = p.run(t, fmt.Sprintf("c%d", i), 0, "exit", "1")
		rt.exited(t, last)
		rt.removeContainer(t, last)
	}
	return last
}

// A reader of stdout that stops must cost nothing but its own events: the agent goes on, and feeds
// it from the journal when it reads again.
func TestBlockedReader(t *testing.T) {
	t.Parallel()
	needBinary(t)
	rt := startContainerd(t, containerd2)
	a := startAgent(t, agentConfig{endpoint: rt.socket, dir: workDir(t, "plegd"), blocked: true})
	a.awaitReady(t)
	last := flood(t, rt)
	fresh := rt.runPod(t, "fresh")
	eventually(t, settle, "status goes on while stdout is blocked", func() error {
		if body := a.getAPI(t, "/v1/pods"); !strings.Contains(body, fresh.uid) {
			return fmt.Errorf("%s is not in %s", fresh.uid, body)
		}
		return nil
	})
	if n := len(a.all()); n != 0 {
		t.Fatalf("read %d events from a blocked stdout", n)
	}

	a.release()
	a.awaitTrace(t, settle, last, wholeContainer)
	checkOrder(t, a.awaitTrace(t, settle, fresh.sandbox, "Created Ready"))
}

// SIGTERM ends the agent in time even if its stdout is blocked.
func TestBlockedReaderDoesNotHoldTheEnd(t *testing.T) {
	t.Parallel()
	needBinary(t)
	rt := startContainerd(t, containerd2)
	a := startAgent(t, agentConfig{endpoint: rt.socket, dir: workDir(t, "plegd"), blocked: true})
	a.awaitReady(t)
	flood(t, rt)
	a.terminate(t)
}
