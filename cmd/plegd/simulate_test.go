package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/store"
)

// simulated starts `plegd simulate` and waits for its line.
func simulated(t *testing.T, args ...string) (c *child, socket, line string) {
	t.Helper()
	socket = filepath.Join(string(newAgentDir(t)), "sim.sock")
	c = start(t, append([]string{"simulate", "--socket", socket}, args...)...)
	out := bufio.NewReader(c.out)
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return c, socket, line
}

// The same seed makes the same pods: the output is golden, times and positions
// aside. One inspection at a time and no stream leave nothing to chance.
func TestGoldenOutput(t *testing.T) {
	t.Parallel()
	sim, socket, line := simulated(t, "--seed", "7", "--pods", "3", "--rate", "0.0001")
	if want := "simulated runtime on unix://" + socket + ": 3 pods, 0.0001 transitions a second, seed 7, faults: none\n"; line != want {
		t.Errorf("said %q, want %q", line, want)
	}
	time.Sleep(300 * time.Millisecond) // all pods run
	for _, form := range []string{"text", "json"} {
		dir := newAgentDir(t)
		c := start(t, dir.args(socket, "--output", form, "--mode", "generic", "--max-inspections", "1", "--log-level", "warn")...)
		dir.awaitReady(t)
		eventually(t, "nothing is left to be asked", func() bool {
			before := dir.position(t)
			time.Sleep(500 * time.Millisecond)
			_, body, err := dir.get("/v1/status")
			return err == nil && before == dir.position(t) && before.Seq > 0 && strings.Contains(body, `"reinspections":[]`)
		})
		c.terminate()
		out, err := io.ReadAll(c.out)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "run."+form, masked(string(out)))
	}
	sim.signal(syscall.SIGINT)
	if code := sim.code(stopLimit); code != exitOK {
		t.Errorf("SIGINT: code %d", code)
	}
}

// With all faults at once an agent still tells lives in order.
func TestSimulateFaults(t *testing.T) {
	t.Parallel()
	sim, socket, line := simulated(t, "--rate", "100", "--pods", "5", "--drop", "0.05", "--duplicate", "0.05",
		"--delay", "50ms", "--delay-share", "0.1", "--eof-every", "700ms", "--hang-every", "1s", "--hang-for", "200ms",
		"--restart-every", "1500ms", "--restart-for", "200ms")
	if want := "faults: drop 0.05, duplicate 0.05, delay 0.1 by 50ms, EOF every 700ms, hang every 1s for 200ms, restart every 1.5s for 200ms\n"; !strings.HasSuffix(line, want) {
		t.Errorf("said %q, want %q", line, want)
	}
	dir := newAgentDir(t)
	c := start(t, dir.args(socket)...)
	r := c.read()
	dir.awaitReady(t)
	time.Sleep(4 * time.Second)
	events := r.all(t)
	checkOrder(t, events)
	seen := map[store.EventType]int{}
	for _, ev := range events {
		seen[ev.Type]++
	}
	for _, want := range []store.EventType{store.SandboxReady, store.ContainerCreated, store.ContainerStarted, store.ContainerDied, store.ContainerRemoved} {
		if seen[want] == 0 {
			t.Errorf("no %s among %v", want, seen)
		}
	}
	c.terminate()
	sim.terminate()
}

// The path is taken as endpoints are, and told as others need it.
func TestSimulateSocketIsToldAbsolute(t *testing.T) {
	t.Parallel()
	dir := string(newAgentDir(t))
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(wd, filepath.Join(dir, "r.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{"unix://" + dir + "/u.sock": dir + "/u.sock", relative: dir + "/r.sock"} {
		c := start(t, "simulate", "--socket", given)
		if line, err := bufio.NewReader(c.out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "simulated runtime on unix://"+want+": ") {
			t.Errorf("--socket %s: %q, %v", given, line, err)
		}
		c.terminate()
	}
}

// One that lives isn't replaced; one that was killed is.
func TestSimulateSocket(t *testing.T) {
	t.Parallel()
	sim, socket, _ := simulated(t)
	code, _, stderr := run(t, "simulate", "--socket", socket)
	if code != exitFailure || !strings.HasPrefix(stderr, "plegd: --socket "+socket+": ") || !strings.Contains(stderr, "in use") {
		t.Errorf("code %d: %q", code, stderr)
	}
	sim.signal(syscall.SIGKILL)
	<-sim.ended
	again := start(t, "simulate", "--socket", socket, "--no-events")
	if line, err := bufio.NewReader(again.out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "simulated runtime") {
		t.Errorf("%q, %v", line, err)
	}
	again.terminate()
}
