package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

// comparing starts `plegd compare` with a directory of its own for all that it
// makes, and returns that.
func comparing(t *testing.T, args ...string) (c *child, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cmp") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return startAs(t, childConfig{env: []string{"TMPDIR=" + dir}}, append([]string{"compare"}, args...)...), dir
}

// leftNothing checks that a comparison left neither a file nor a process that
// works in its directory.
func leftNothing(t *testing.T, dir string) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	eventually(t, "all processes of the comparison have ended", func() bool { return len(processesWith("TMPDIR="+dir)) == 0 })
}

// processesWith lists the processes that have something in their environment.
func processesWith(env string) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		text, _ := os.ReadFile(path) // it may have ended meanwhile
		if slices.Contains(strings.Split(string(text), "\x00"), env) {
			pids = append(pids, filepath.Dir(path))
		}
	}
	return pids
}

func readReport(t *testing.T, c *child) (r compare.Report) {
	t.Helper()
	if err := json.NewDecoder(c.out).Decode(&r); err != nil {
		t.Fatalf("report: %v\n%s", err, c.stderr)
	}
	return r
}

func modeOf(t *testing.T, r *compare.Report, name string) *compare.ModeReport {
	t.Helper()
	i := slices.IndexFunc(r.Modes, func(m compare.ModeReport) bool { return m.Name == name })
	if i < 0 {
		t.Fatalf("no mode %s", name)
	}
	return &r.Modes[i]
}

// missedButDeaths is how many transitions a mode missed. The death of what failed
// to start has no event, and may not be listed in time either.
func missedButDeaths(m *compare.ModeReport) (n int) {
	for _, f := range m.Findings {
		if f.Fault == compare.Missed && f.Type != store.ContainerDied {
			n++
		}
	}
	return n
}

// A runtime that loses the events of removals: evented misses those, hybrid and
// generic don't, and a threshold about it is exit code 3 and a line that says so.
func TestCompareFindsWhoMisses(t *testing.T) {
	t.Parallel()
	c, dir := comparing(t, "--workload", "seed=3,pods=6,rate=20", "--fault", "method=event,type=deleted,drop",
		"--transitions", "80", "--modes", "generic=200ms,evented,hybrid", "--fail-on", "missed>3,hybrid:missed>9",
		"--json", "--html", filepath.Join(t.TempDir(), "report.html"))
	r := readReport(t, c)
	if code := c.code(patience); code != exitExpired {
		t.Errorf("exit code %d", code)
	}
	evented, hybrid := modeOf(t, &r, "evented"), modeOf(t, &r, "hybrid")
	// Some it finds out when it asks about a death and the container is gone.
	if removed := r.Counts["ContainerRemoved"] + r.Counts["SandboxRemoved"]; 2*evented.Missed < removed || removed < 10 {
		t.Errorf("%d removals, evented missed %d", removed, evented.Missed)
	}
	if n := missedButDeaths(hybrid); n > 0 {
		t.Errorf("hybrid missed %d: %+v", n, hybrid.Findings)
	}
	if r.Basis[compare.BasisHistory] != len(r.Transitions) || len(r.Transitions) < 70 || r.Winner == "evented" || r.Runtime.CPU == 0 {
		t.Errorf("%d transitions, basis %v, winner %s, runtime %+v", len(r.Transitions), r.Basis, r.Winner, r.Runtime.CPU)
	}
	if len(r.Broken) != 1 || !strings.HasPrefix(r.Broken[0], "missed>3: evented has ") || !strings.Contains(c.stderr.String(), "plegd: --fail-on: missed>3: evented has ") {
		t.Errorf("broken %q; stderr:\n%s", r.Broken, c.stderr)
	}
	for _, f := range evented.Findings {
		if f.Fault == compare.Missed && len(f.Around) == 0 {
			t.Errorf("nothing is beside %+v", f)
		}
	}
	leftNothing(t, dir)
}

// Without a fault nobody misses anything but what lived between two relists, and
// the text says who is best.
func TestCompareText(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "report.html")
	c, dir := comparing(t, "--workload", "seed=1,pods=3,rate=10", "--for", "3s", "--late", "1s", "--fail-on", "hybrid:missed>50%", "--html", page)
	out := make(chan string, 1)
	go func() {
		b := make([]byte, 64<<10)
		n := 0
		for {
			m, err := c.out.Read(b[n:])
			if n += m; err != nil {
				break
			}
		}
		out <- string(b[:n])
	}()
	if code := c.code(patience); code != exitOK {
		t.Errorf("exit code %d:\n%s", code, c.stderr)
	}
	text := <-out
	for _, want := range []string{"containerd v2.4.2 on ", "load: 3 pods, simulated, 10 transitions a second, seed 1", "STATE WRONG", "\nhybrid ", "GetContainerEvents", "\nVerdict\n- ", "Best for this node: "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), "Follow one transition") {
		t.Errorf("page: %v", err)
	}
	leftNothing(t, dir)
}

// Ctrl-C ends the measurement, gives the report and cleans up; also when the
// comparison itself is killed nothing goes on running.
func TestCompareInterrupted(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			c, dir := comparing(t, "--workload", "seed=1,pods=3,rate=20", "--for", "1h", "--late", "200ms", "--modes", "hybrid,generic=100ms", "--fail-on", "hybrid:p99>1h", "--json")
			eventually(t, "it measures", func() bool { return strings.Contains(c.stderr.String(), "measuring for 1h") })
			time.Sleep(500 * time.Millisecond)
			c.signal(sig)
			if sig == syscall.SIGKILL {
				c.code(patience)
				eventually(t, "all processes of the comparison have ended", func() bool { return len(processesWith("TMPDIR="+dir)) == 0 })
				return
			}
			r := readReport(t, c)
			if code := c.code(patience); code != exitExpired || len(r.Broken) != 1 || len(r.Notes) != 1 || !strings.HasPrefix(r.Notes[0], "interrupted after") || len(r.Transitions) == 0 {
				t.Errorf("exit code %d, notes %q, %d transitions", code, r.Notes, len(r.Transitions))
			}
			leftNothing(t, dir)
		})
	}
}

// Pods of a load on a real runtime are removed at the end, also after Ctrl-C, and
// by the next comparison if that was killed. Those of others stay.
func TestCompareRemovesItsPods(t *testing.T) {
	t.Parallel()
	rt, socket := simtest.Start(t, simruntime.Config{Seed: 1})
	if _, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "shop", Name: "other", UID: "u1"}); err != nil {
		t.Fatal(err)
	}
	pods := func() int { return len(rt.Truth().Sandboxes) }
	args := []string{"--runtime-endpoint", socket, "--modes", "hybrid", "--late", "200ms", "--json"}
	busy := append(slices.Clone(args), "--workload", "image=busybox,pods=3,rate=50,containers=1,network=host", "--for", "1h")

	c, dir := comparing(t, append(busy, "--", "sleep", "3600")...)
	eventually(t, "pods come", func() bool { return pods() == 4 })
	for _, ctr := range rt.Truth().Containers {
		if ctr.Status.GetImage().GetImage() != "busybox" || ctr.Status.GetLabels()["plegd.io/compare"] == "" {
			t.Errorf("container %+v", ctr.Status)
		}
	}
	c.signal(syscall.SIGINT)
	r := readReport(t, c)
	if code := c.code(patience); code != exitOK || pods() != 1 {
		t.Errorf("SIGINT: exit code %d, %d pods", code, pods())
	}
	if m := r.Modes[0]; m.Told < 4 || m.Missed > 0 || m.Wrong > 0 || !strings.Contains(r.Load, "of image busybox") {
		t.Errorf("%+v", m)
	}
	leftNothing(t, dir)

	c, _ = comparing(t, busy...)
	eventually(t, "pods come", func() bool { return pods() == 4 })
	c.signal(syscall.SIGKILL)
	c.code(patience)
	left := pods()
	if left < 2 {
		t.Fatalf("%d pods after a kill", left)
	}
	c, dir = comparing(t, append(args, "--workload", "image=busybox,pods=1,rate=50", "--for", "1s")...)
	_ = readReport(t, c)
	if code := c.code(patience); code != exitOK || pods() != 1 || !strings.Contains(c.stderr.String(), fmt.Sprintf("removed %d pods that a comparison left behind", left-1)) {
		t.Errorf("exit code %d, %d pods:\n%s", code, pods(), c.stderr)
	}
	leftNothing(t, dir)
}

// What keeps it from comparing is one line.
func TestCompareCannot(t *testing.T) {
	t.Parallel()
	_, old := simtest.Start(t, simruntime.Config{Profile: simruntime.Containerd16})
	for _, tc := range []struct{ args, want string }{
		{"--runtime-endpoint /nonexistent/x.sock", "plegd: runtime /nonexistent/x.sock: not there"},
		{"--runtime-endpoint " + old + " --modes evented", "plegd: no mode could be run: evented: event stream is not supported by the runtime"},
		{"--workload seed=1 --html /nonexistent/report.html", "plegd: --html \"/nonexistent/report.html\": no such file or directory"},
	} {
		c, dir := comparing(t, strings.Fields(tc.args)...)
		if code := c.code(patience); code != exitFailure || !strings.Contains(c.stderr.String(), tc.want) {
			t.Errorf("%s: exit code %d:\n%s", tc.args, code, c.stderr)
		}
		leftNothing(t, dir)
	}
}

// On a recording the modes are compared in virtual time: what evented misses
// there it misses again, and once more gives the same report but for what it cost.
func TestCompareInput(t *testing.T) {
	t.Parallel()
	sim, socket, _ := simulated(t, "--seed", "3", "--pods", "6", "--rate", "20", "--fault", "method=event,type=deleted,drop")
	path := filepath.Join(string(newAgentDir(t)), "r.plegd")
	if code, _, stderr := run(t, "record", "--runtime-endpoint", socket, "--output", path, "--for", "6s"); code != exitOK {
		t.Fatalf("record: code %d: %s", code, stderr)
	}
	sim.terminate()
	args := []string{"--input", path, "--modes", "generic=200ms,evented,hybrid,hinted=200ms", "--late", "1s", "--json"}
	c, dir := comparing(t, append(args, "--fail-on", "evented:missed>3")...)
	r := readReport(t, c)
	if code := c.code(patience); code != exitExpired || len(r.Broken) != 1 {
		t.Errorf("exit code %d, broken %q", code, r.Broken)
	}
	for _, m := range r.Modes {
		if m.NotRun+m.Ended != "" || m.Judged < 20 || missedButDeaths(&m) > 0 && m.Name == "hybrid" || m.Cost.CPU != 0 || m.Cost.Total.Calls == 0 {
			t.Errorf("%s: %s%s judged %d, missed %d, cost %+v", m.Name, m.NotRun, m.Ended, m.Judged, m.Missed, m.Cost)
		}
	}
	if r.Runtime.Name != "containerd" || r.Winner == "evented" || r.Winner == "" || !strings.HasPrefix(r.Load, "as recorded by ") {
		t.Errorf("runtime %+v, winner %q, load %q", r.Runtime, r.Winner, r.Load)
	}
	leftNothing(t, dir)

	c, _ = comparing(t, args...)
	again := readReport(t, c)
	again.Broken = r.Broken
	if diff := cmp.Diff(r, again); diff != "" {
		t.Errorf("once more gives another report (-first +again):\n%s", diff)
	}

	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	torn, foreign := filepath.Join(t.TempDir(), "torn"), filepath.Join(t.TempDir(), "foreign")
	for path, text := range map[string][]byte{torn: whole[:len(whole)*9/10], foreign: []byte("a text")} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, _ = comparing(t, "--input", torn, "--modes", "hybrid", "--late", "200ms", "--json")
	if r := readReport(t, c); len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "torn at byte") || len(r.Transitions) == 0 {
		t.Errorf("torn: %q, %d transitions", r.Notes, len(r.Transitions))
	}
	if len(r.Notes) > 0 { // that it has the length that was asked for is none
		t.Errorf("notes %q", r.Notes)
	}
	page, pipe := filepath.Join(t.TempDir(), "page"), filepath.Join(t.TempDir(), "pipe")
	if err := errors.Join(os.WriteFile(page, []byte("an old report"), 0o600), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ args, want string }{
		{"--input " + path + " --html " + path, "is the recording of --input"},
		{"--input " + path + " --html " + pipe, "is no regular file"},
		{"--input " + path + " --fail-on evented:cpu>1s", "--fail-on \"evented:cpu>1s\": has no effect with --input"},
	} {
		c, _ := comparing(t, strings.Fields(tc.args)...)
		if code := c.code(patience); code != exitUsage || !strings.Contains(c.stderr.String(), tc.want) || strings.Count(c.stderr.String(), "\n") != 1 {
			t.Errorf("%s: exit code %d:\n%s", tc.args, code, c.stderr)
		}
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, whole) {
		t.Errorf("the recording has changed: %d bytes, %v", len(now), err)
	}
	for _, tc := range []struct{ args, want string }{
		{"--input " + pipe, "is no regular file"},
		{"--input " + foreign + " --html " + page, "not a recording"},
		{"--input " + foreign, "not a recording"},
		{"--input /nonexistent/r.plegd", "no such file"},
		{"--input " + path + " --late 10s", "too short"},
	} {
		c, dir := comparing(t, strings.Fields(tc.args)...)
		if code := c.code(patience); code != exitFailure || !strings.Contains(c.stderr.String(), tc.want) || strings.Count(c.stderr.String(), "\n") != 1 {
			t.Errorf("%s: exit code %d:\n%s", tc.args, code, c.stderr)
		}
		leftNothing(t, dir)
	}
	if left, err := filepath.Glob(page + "*"); err != nil || len(left) != 1 {
		t.Errorf("left %q, %v", left, err)
	}
	if old, err := os.ReadFile(page); err != nil || string(old) != "an old report" {
		t.Errorf("the old report is %q, %v", old, err)
	}
}
