package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/logtest"
)

// crictlEvents runs `crictl events` and returns how many events it has printed.
func crictlEvents(t *testing.T, rt *containerd) (count func() int) {
	t.Helper()
	endpoint := "unix://" + rt.socket
	cmd := exec.Command(filepath.Join(runtimesDir(), "bin", "crictl"), "-r", endpoint, "-i", endpoint, "events", "-o", "json")
	var stdout, stderr logtest.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("crictl events:\n%s%s", stdout.String(), stderr.String())
		}
	})
	return func() int {
		n := 0
		d := json.NewDecoder(strings.NewReader(stdout.String()))
		for {
			var e map[string]any
			if d.Decode(&e) != nil {
				return n // the rest is not there yet
			}
			n++
		}
	}
}

// awaitCount waits until there are as many events as wanted, and no more.
func awaitCount(t *testing.T, count func() int, want int) {
	t.Helper()
	eventually(t, settle, "crictl has all events", func() error {
		if n := count(); n != want {
			return fmt.Errorf("%d of %d", n, want)
		}
		return nil
	})
}

// eventsOf is how many events a container has that is run to its end and removed.
const eventsOf = 4

// makeEvents runs containers to their end and removes them.
func makeEvents(t *testing.T, p *pod, n int) {
	t.Helper()
	for i := range n {
		id := p.run(t, fmt.Sprintf("events-%d", i), 0, "exit", "3")
		p.rt.exited(t, id)
		p.rt.removeContainer(t, id)
	}
}

// The subscribers of containerd 1.7 compete: two of them share the events. So plegd subscribes to
// nothing there, says why, and takes nothing from others.
func TestCompetingSubscribers(t *testing.T) {
	t.Parallel()
	const containers = 10
	t.Run("a second subscriber takes events away", func(t *testing.T) {
		rt := startContainerd(t, containerd17)
		p := rt.runPod(t, "shared")
		one, other := crictlEvents(t, rt), crictlEvents(t, rt)
		makeEvents(t, p, containers)
		const all = containers * eventsOf
		eventually(t, settle, "both have all events together", func() error {
			// The two of the sandbox lie in the channel since before both.
			if n := one() + other(); n < all {
				return fmt.Errorf("%d and %d of %d", one(), other(), all)
			}
			return nil
		})
		if one() >= all || other() >= all {
			t.Errorf("%d and %d events: they do not compete, so plegd need not refuse the stream", one(), other())
		}
	})
	t.Run("plegd takes none", func(t *testing.T) {
		w := watch(t, containerd17)
		w.awaitStream(t, streamRefused)
		p := w.rt.runPod(t, "whole")
		crictl := crictlEvents(t, w.rt)
		awaitCount(t, crictl, 2) // of the sandbox
		makeEvents(t, p, containers)
		awaitCount(t, crictl, 2+containers*eventsOf)
		w.lives(t, p, "told", "9")
		if n := count(w.proxy.since(0))["GetContainerEvents"]; n > 0 {
			t.Errorf("plegd subscribed %d times", n)
		}
	})
}
