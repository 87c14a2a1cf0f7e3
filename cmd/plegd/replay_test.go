package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recordedFile records a simulated runtime for a moment.
func recordedFile(t *testing.T, sim []string, record ...string) string {
	t.Helper()
	c, socket, _ := simulated(t, sim...)
	path := filepath.Join(string(newAgentDir(t)), "r.plegd")
	if code, _, stderr := run(t, append([]string{"record", "--runtime-endpoint", socket, "--output", path, "--for", "2500ms"}, record...)...); code != exitOK {
		t.Fatalf("code %d: %s", code, stderr)
	}
	c.terminate()
	return path
}

// replayed replays with so many processors.
func replayed(t *testing.T, procs string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	c := startAs(t, childConfig{env: []string{"GOMAXPROCS=" + procs}}, append([]string{"replay"}, args...)...)
	out, err := io.ReadAll(c.out)
	if err != nil {
		t.Fatal(err)
	}
	return c.code(patience), string(out), c.stderr.String()
}

// The same recording and the same flags give the same bytes, in each mode and form.
func TestReplay(t *testing.T) {
	t.Parallel()
	path := recordedFile(t, []string{"--pods", "5", "--rate", "50", "--seed", "3"})
	for _, mode := range modeNames() {
		args := []string{"--input", path, "--mode", mode, "-o", "json"}
		code, first, said := replayed(t, "1", args...)
		if n := strings.Count(first, `"type":"Container`); code != exitOK || n < 20 {
			t.Errorf("%s: code %d, %d events of containers: %s", mode, code, n, said)
		}
		if !strings.HasPrefix(said, "replayed ") || !strings.Contains(said, " in mode "+mode+": ") || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: said %q", mode, said)
		}
		if code, again, said2 := replayed(t, "2", args...); code != exitOK || again != first || said2 != said {
			t.Errorf("%s: once more, code %d:\n%s%s\nfirst:\n%s%s", mode, code, again, said2, first, said)
		}
	}
	for _, tc := range []struct{ args, want string }{
		{"", "POSITION "},
		{"--kubelet-view -o json", `"ContainerStarted"`},
		{"-o go-template={{.type}} --type ContainerDied --limit", "ContainerDied\n"},
		{"-o cloudevents", `"source":"/nodes/recorded/plegd"`},
	} {
		args := append([]string{"--input", path}, strings.Fields(strings.TrimSuffix(tc.args, " --limit"))...)
		if code, out, stderr := replayed(t, "2", args...); code != exitOK || !strings.Contains(out, tc.want) {
			t.Errorf("%s: code %d, %q, %s", tc.args, code, out, stderr)
		}
	}
	if _, out, _ := replayed(t, "2", "--input", path, "--pod", "none"); out != "" {
		t.Errorf("of no pod: %s", out)
	}
	// A reader that has seen enough ends it.
	c := start(t, "replay", "--input", path)
	if err := c.out.Close(); err != nil {
		t.Fatal(err)
	}
	if code := c.code(patience); code != exitOK {
		t.Errorf("without a reader: code %d", code)
	}
}

// What is torn is replayed up to the tear; what is none gives one line that says so.
func TestReplayOfDamagedRecordings(t *testing.T) {
	t.Parallel()
	path := recordedFile(t, []string{"--pods", "5", "--rate", "50"}, "--redact")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(name string, b []byte) string {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	_, all, said := replayed(t, "2", "--input", path, "-o", "json")
	if !strings.Contains(said, ", redacted)") {
		t.Errorf("said %q", said)
	}
	code, some, said := replayed(t, "2", "--input", put("torn", whole[:len(whole)-200]), "-o", "json")
	if code != exitOK || some == "" || len(some) >= len(all) || !strings.HasPrefix(all, some) || !strings.Contains(said, "warning: the recording is torn at byte ") {
		t.Errorf("torn: code %d, %d bytes of %d, %q", code, len(some), len(all), said)
	}
	for _, tc := range []struct {
		path string
		want []string
	}{
		{filepath.Join(dir, "none"), []string{"no such file"}},
		{dir, []string{"is a directory"}},
		{put("empty", nil), []string{"not a recording", "doesn't begin with"}},
		{put("foreign", []byte("a text\nof some lines\n")), []string{"not a recording", "doesn't begin with"}},
		{put("newer", []byte("plegd recording 9\nxxxx")), []string{"version 9", "at most 1"}},
		{put("short", whole[:25]), []string{"torn at byte 18"}},
	} {
		code, out, stderr := replayed(t, "2", "--input", tc.path)
		if code != exitFailure || out != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, `plegd: --input "`+tc.path+`": `) {
			t.Errorf("%s: code %d, %q, %q", tc.path, code, out, stderr)
		}
		for _, part := range tc.want {
			if !strings.Contains(stderr, part) {
				t.Errorf("%s: %q is not in %q", tc.path, part, stderr)
			}
		}
	}
}

// A runtime without a stream has none in a replay either; nor has a recording of mode
// generic.
func TestReplayWithoutStream(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		recordedFile(t, []string{"--no-events", "--rate", "20"}),
		recordedFile(t, []string{"--rate", "20"}, "--mode", "generic"),
	} {
		if code, _, stderr := replayed(t, "2", "--input", path, "--mode", "evented"); code != exitUnsupported || !strings.Contains(stderr, "plegd: ") {
			t.Errorf("evented: code %d, %s", code, stderr)
		}
		if code, out, stderr := replayed(t, "2", "--input", path); code != exitOK || !strings.Contains(out, "ContainerStarted") || strings.Contains(out, "source=stream") {
			t.Errorf("hybrid: code %d, %s%s", code, out, stderr)
		}
	}
}

func TestReplayBadUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args string
		want []string
	}{
		{"replay", []string{`--input ""`, "see plegd replay --help"}},
		{"replay r.plegd", []string{`plegd replay takes no arguments, but got "r.plegd"`}},
		{"replay --input x --mode both", []string{"--mode", `"both"`, "hybrid, generic, evented"}},
		{"replay --input x --relist-period 1ms", []string{"--relist-period 1ms", "at least 10ms"}},
		{"replay --input x --relist-period 1m --relist-period-max 1s", []string{"--relist-period-max 1s", "below the relist period"}},
		{"replay --input x -o text", []string{"--output", `"text"`, "table, json, yaml, cloudevents, go-template=TEMPLATE"}},
		{"replay --input x --kubelet-view -o cloudevents", []string{"--output cloudevents", "--kubelet-view"}},
		{"replay --input x --kubelet-view --type ContainerDied", []string{"--kubelet-view", "leave one of them out"}},
		{"replay --input x --type Died", []string{"--type", `"Died"`}},
	} {
		var out, errs strings.Builder
		err := execute(strings.Fields(tc.args), streams{&out, &errs, func(string) string { return "" }})
		if code := exitCode(err); code != exitUsage {
			t.Errorf("%s: code %d, want %d: %v", tc.args, code, exitUsage, err)
			continue
		}
		for _, part := range tc.want {
			if !strings.Contains(oneLine(err), part) {
				t.Errorf("%s: %q is not in %q", tc.args, part, err)
			}
		}
	}
}
