package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/recording"
)

// readRecording returns what is in a file.
func readRecording(t *testing.T, path string) (h recording.Header, entries []*recording.Entry, end *recording.End, torn error) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := recording.NewReader(file)
	if err != nil {
		return h, nil, nil, err
	}
	defer r.Close()
	for {
		e, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return r.Header, entries, r.End(), nil
		case err != nil:
			return r.Header, entries, nil, err
		}
		entries = append(entries, e)
	}
}

// count counts the entries of a kind and method that are no errors.
func count(entries []*recording.Entry, kind recording.Kind, method string) (n int) {
	for _, e := range entries {
		if e.Kind == kind && e.Method == method && e.Code == 0 {
			n++
		}
	}
	return n
}

func TestRecord(t *testing.T) {
	t.Parallel()
	sim, socket, _ := simulated(t, "--pods", "5", "--rate", "50", "--seed", "3")
	path := filepath.Join(string(newAgentDir(t)), "r.plegd")
	code, out, stderr := run(t, "record", "--runtime-endpoint", socket, "--output", path, "--for", "2500ms", "--log-level", "warn")
	if code != exitOK || out != "" || !strings.HasPrefix(stderr, "recorded ") || !strings.HasSuffix(stderr, " KiB in "+path+"; the time was over\n") {
		t.Errorf("code %d, stdout %q, stderr %q", code, out, stderr)
	}
	h, entries, end, err := readRecording(t, path)
	if err != nil || end == nil || end.Reason != recording.EndTime || end.At < int64(2500*time.Millisecond) {
		t.Fatalf("%d entries, %+v, %v", len(entries), end, err)
	}
	if h.Mode != "hybrid" || h.Period != 1e9 || h.Timeout != 1e10 || h.Redacted || h.Agent != thisBuild().String() || time.Since(time.Unix(0, h.StartedAt)).Abs() > patience {
		t.Errorf("header %+v", h)
	}
	for _, want := range []struct {
		kind   recording.Kind
		method string
		least  int
	}{
		{recording.KindConnected, "", 1}, {recording.KindAnswer, "Version", 1}, {recording.KindOpened, recording.MethodEvents, 1}, {recording.KindEvent, recording.MethodEvents, 30},
		{recording.KindAsked, "ListContainers", 2}, {recording.KindAnswer, "ListContainers", 2}, {recording.KindAnswer, "ListPodSandbox", 2},
	} {
		if n := count(entries, want.kind, want.method); n < want.least {
			t.Errorf("%d of kind %d and method %q, want %d", n, want.kind, want.method, want.least)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: it tells of other people's pods", info.Mode(), err)
	}

	// A file that is there is somebody's.
	if code, _, stderr := run(t, "record", "--runtime-endpoint", socket, "--output", path); code != exitUsage || !strings.Contains(stderr, path) || !strings.Contains(stderr, "is there already") {
		t.Errorf("code %d: %q", code, stderr)
	}
	sim.terminate()
}

// Ctrl-C ends it well; a kill leaves what can be read, and shows.
func TestRecordIsStopped(t *testing.T) {
	t.Parallel()
	sim, socket, _ := simulated(t, "--pods", "5", "--rate", "20")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		path := filepath.Join(string(newAgentDir(t)), "r.plegd")
		c := start(t, "record", "--runtime-endpoint", socket, "--output", path, "--mode", "generic")
		eventually(t, "lists are in the file", func() bool {
			if _, err := os.Stat(path); err != nil {
				return false
			}
			_, entries, _, _ := readRecording(t, path)
			return count(entries, recording.KindAnswer, "ListContainers") > 0
		})
		c.signal(sig)
		code := c.code(stopLimit)
		_, entries, end, err := readRecording(t, path)
		if n := count(entries, recording.KindOpened, recording.MethodEvents); n > 0 {
			t.Errorf("mode generic has opened %d streams", n)
		}
		var torn *recording.TornError
		switch {
		case sig == syscall.SIGKILL:
			if !errors.As(err, &torn) || len(entries) == 0 {
				t.Errorf("killed: %d entries, %v", len(entries), err)
			}
		case code != exitOK || err != nil || end.Reason != recording.EndAsked || !strings.Contains(c.stderr.String(), "; asked to stop\n"):
			t.Errorf("%v: code %d, %+v, %v, %s", sig, code, end, err, c.stderr)
		}
	}
	sim.terminate()
}

// A file never gets larger than it may.
func TestRecordIsFull(t *testing.T) {
	t.Parallel()
	sim, socket, _ := simulated(t, "--pods", "200", "--rate", "400")
	path := filepath.Join(string(newAgentDir(t)), "r.plegd")
	code, _, stderr := run(t, "record", "--runtime-endpoint", socket, "--output", path, "--max-size", "64KiB", "--log-level", "error")
	_, entries, end, err := readRecording(t, path)
	if code != exitOK || !strings.Contains(stderr, "; the file is full\n") || err != nil || end.Reason != recording.EndFull || end.Left == 0 || len(entries) == 0 {
		t.Errorf("code %d, %q, %d entries, %+v, %v", code, stderr, len(entries), end, err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 64<<10 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	sim.terminate()
}

// What is redacted holds no name of any pod.
func TestRecordRedacted(t *testing.T) {
	t.Parallel()
	sim, socket, _ := simulated(t, "--pods", "10", "--rate", "30")
	dir := string(newAgentDir(t))
	names := []string{"kube-system", "default", "shop", "web", "queue", "cron", "cache", "registry.example", "10.0.0."}
	found := func(args ...string) map[string]bool {
		path := filepath.Join(dir, "r.plegd")
		if code, _, stderr := run(t, append([]string{"record", "--runtime-endpoint", socket, "--output", path, "--for", "1500ms"}, args...)...); code != exitOK {
			t.Fatalf("code %d: %s", code, stderr)
		}
		h, entries, _, err := readRecording(t, path)
		if err != nil || len(entries) == 0 || h.Redacted != (len(args) > 0) {
			t.Fatalf("%+v, %d entries, %v", h, len(entries), err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for _, e := range entries {
			for _, name := range names {
				if strings.Contains(string(e.Body)+e.Message+e.About, name) {
					there[name] = true
				}
			}
		}
		return there
	}
	if got := found(); len(got) < len(names)-2 {
		t.Errorf("of %q only %v are there at all", names, got)
	}
	if got := found("--redact"); len(got) > 0 {
		t.Errorf("%v are there still", got)
	}
	sim.terminate()
}

// A runtime that isn't there, and one without a stream, are recorded as they are.
func TestRecordWithoutRuntime(t *testing.T) {
	t.Parallel()
	dir := string(newAgentDir(t))
	path := filepath.Join(dir, "r.plegd")
	code, _, stderr := run(t, "record", "--runtime-endpoint", filepath.Join(dir, "none.sock"), "--output", path, "--for", "500ms")
	_, entries, _, err := readRecording(t, path)
	if code != exitOK || err != nil || len(entries) == 0 || !strings.Contains(entries[0].Message, "no such file") {
		t.Errorf("code %d, %v, %d entries: %s", code, err, len(entries), stderr)
	}
	// Where nobody named one there is nothing to record, or to wait for.
	c := startAs(t, childConfig{env: []string{socketsEnv + "=" + filepath.Join(dir, "none.sock")}}, "record", "--output", path+"0", "--for", "1s")
	if code := c.code(patience); code != exitFailure || !strings.Contains(c.stderr.String(), "name its socket with --runtime-endpoint") {
		t.Errorf("code %d: %s", code, c.stderr)
	}
	if _, err := os.Stat(path + "0"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file is left: %v", err)
	}
	sim, socket, _ := simulated(t, "--no-events")
	code, _, stderr = run(t, "record", "--runtime-endpoint", socket, "--output", path+"2", "--mode", "evented")
	if code != exitUnsupported || !strings.Contains(stderr, "plegd: ") {
		t.Errorf("code %d: %s", code, stderr)
	}
	if _, entries, end, err := readRecording(t, path+"2"); err != nil || len(entries) == 0 || !strings.Contains(end.Reason, "who asked has ended") {
		t.Errorf("%d entries, %+v, %v", len(entries), end, err)
	}
	sim.terminate()
}

func TestRecordBadUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, tc := range []struct {
		args string
		code int
		want []string
	}{
		{"record", exitUsage, []string{`--output ""`, "see plegd record --help"}},
		{"record extra", exitUsage, []string{`plegd record takes no arguments, but got "extra"`}},
		{"record --output x --for 0", exitUsage, []string{"--for", `"0"`, "positive duration"}},
		{"record --output x --max-size 1KiB", exitUsage, []string{"--max-size 1KiB", "at least 64KiB"}},
		{"record --output x --max-size big", exitUsage, []string{"--max-size", `"big"`, "64MiB"}},
		{"record --output x --mode both", exitUsage, []string{"--mode", `"both"`, "hybrid, generic, evented"}},
		{"record --output x --relist-period 1ms", exitUsage, []string{"--relist-period 1ms", "at least 10ms"}},
		{"record --output x --rpc-timeout 1ms", exitUsage, []string{"--rpc-timeout 1ms", "at least 10ms"}},
		{"record --output x --runtime-endpoint=", exitUsage, []string{"--runtime-endpoint", "empty"}},
		{"record --output x --runtime-endpoint tcp://x", exitUsage, []string{"--runtime-endpoint", "tcp://x"}},
		{"record --runtime-endpoint /x --output " + dir, exitUsage, []string{"--output", dir, "is there already"}},
		{"record --runtime-endpoint /x --output " + dir + "/no/r", exitFailure, []string{"--output", dir + "/no/r", "no such file or directory"}},
	} {
		code, out, stderr := run(t, strings.Fields(tc.args)...)
		if code != tc.code || out != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: code %d, %q, %q", tc.args, code, out, stderr)
		}
		for _, part := range tc.want {
			if !strings.Contains(stderr, part) {
				t.Errorf("%s: %q is not in %q", tc.args, part, stderr)
			}
		}
	}
}
