package main

import (
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/plegd/plegd/internal/doctor"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// TestDoctor: what is wrong with a stream decides the exit code, and the report is
// written in both forms.
func TestDoctor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		sim  []string
		code int
		says string
	}{
		{"fit", nil, exitOK, "Fit for evented operation"},
		{"lossy", []string{"--drop", "0.3"}, exitUnfit, "Not fit to be followed by events alone (missing)"},
		{"without events", []string{"--no-events"}, exitUnfit, "Not fit for evented operation"},
		{"idle", []string{"--rate", "0.0001", "--containers", "1"}, exitUnjudged, "Nothing happened"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, socket, _ := simulated(t, append([]string{"--rate", "20"}, tc.sim...)...)
			code, out, stderr := run(t, "doctor", "--runtime-endpoint", socket, "--for", "6s")
			if code != tc.code || !strings.Contains(out, tc.says) {
				t.Errorf("code %d, want %d\n%s\n%s", code, tc.code, out, stderr)
			}
		})
	}
}

// A doctor that is interrupted judges what it has seen, and says so.
func TestDoctorInterrupted(t *testing.T) {
	t.Parallel()
	_, socket, _ := simulated(t, "--rate", "20")
	c := start(t, "doctor", "--runtime-endpoint", socket, "--for", "10m", "--json")
	eventually(t, "it listens", func() bool { return strings.Contains(c.stderr.String(), "listening to containerd") })
	c.signal(syscall.SIGINT)
	var r doctor.Report
	if err := json.NewDecoder(c.out).Decode(&r); err != nil || r.Whole || r.Version == "" {
		t.Errorf("%+v, %v", r, err)
	}
	c.code(patience)
}

// A load whose pods don't come is told of: little happens then, and more of it would not help.
func TestDoctorWithAFailingLoad(t *testing.T) {
	t.Parallel()
	rt, socket := simtest.Start(t, simruntime.Config{Seed: 1})
	if _, err := rt.AddRule(simruntime.Rule{Method: "RunPodSandbox", Code: codes.ResourceExhausted}); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := run(t, "doctor", "--runtime-endpoint", socket, "--for", "5s", "--workload", "image=x,pods=3,rate=20")
	if code != exitUnjudged || !strings.Contains(stderr, "calls of the load failed, such as: run pod") {
		t.Errorf("code %d: %s\n%s", code, out, stderr)
	}
}

// What can't be examined is said in one line of the report.
func TestDoctorWithoutARuntime(t *testing.T) {
	t.Parallel()
	dir := string(newAgentDir(t))
	code, out, _ := run(t, "doctor", "--runtime-endpoint", filepath.Join(dir, "none.sock"))
	if code != exitUnjudged || !strings.Contains(out, "none.sock is not there") || strings.Contains(out, "before its time") {
		t.Errorf("code %d: %s", code, out)
	}
	for flag, args := range map[string][]string{
		"--for":              {"--for", "1s"},
		"--runtime-endpoint": {"--runtime-endpoint", "tcp://x:1"},
		"--workload":         {"--workload", "speed=1"},
		"--fault":            {"--fault", "do=freeze,at=1m"},
		"--":                 {"--", "sleep"},
	} {
		if code, _, stderr := run(t, append([]string{"doctor"}, args...)...); code != exitUsage || !strings.Contains(stderr, flag) {
			t.Errorf("%v: code %d: %s", args, code, stderr)
		}
	}
}

// Who answers and is no CRI runtime is named as what it is, and nothing was cut short.
func TestDoctorOfAnotherServer(t *testing.T) {
	t.Parallel()
	dir := string(newAgentDir(t))
	listen := func(name string) net.Listener {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	web := &http.Server{ReadHeaderTimeout: patience}
	other := grpc.NewServer()
	t.Cleanup(func() { _ = web.Close(); other.Stop() })
	webListener, otherListener := listen("web.sock"), listen("grpc.sock")
	go func() { _ = web.Serve(webListener) }()
	go func() { _ = other.Serve(otherListener) }()
	for name, says := range map[string]string{"web.sock": "speaks no gRPC", "grpc.sock": "doesn't speak the CRI"} {
		code, out, _ := run(t, "doctor", "--runtime-endpoint", filepath.Join(dir, name))
		if code != exitUnfit || !strings.Contains(out, says) || strings.Contains(out, "before its time") {
			t.Errorf("%s: code %d: %s", name, code, out)
		}
	}
}
