package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/runtimes"
)

// This test binary also plays plegd: `simulate` serves CRI, `run` says how it was called.
func TestMain(m *testing.M) {
	if os.Getenv("MAKERUN_FAKE_PLEGD") == "1" && len(os.Args) > 1 {
		os.Exit(fakePlegd(os.Args[1:]))
	}
	os.Exit(m.Run())
}

func fakePlegd(args []string) int {
	switch args[0] {
	case "simulate":
		lis, err := net.Listen("unix", args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		server := grpc.NewServer()
		runtimeapi.RegisterRuntimeServiceServer(server, &fakeRuntime{name: "sim"})
		_ = server.Serve(lis)
	case "run":
		fmt.Println("called with", strings.Join(args, " "))
		if os.Getenv("MAKERUN_FAKE_WAITS") == "1" {
			time.Sleep(time.Minute)
		}
		return 7
	}
	return 0
}

type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	name string
}

func (f *fakeRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: f.name}, nil
}

// shortDir is a folder whose sockets fit a unix address.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mr")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func serve(t *testing.T, register func(*grpc.Server)) (socket string) {
	t.Helper()
	socket = filepath.Join(shortDir(t), "cri.sock")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	go server.Serve(lis)
	t.Cleanup(server.Stop)
	return socket
}

func serveCRI(t *testing.T) string {
	return serve(t, func(s *grpc.Server) {
		runtimeapi.RegisterRuntimeServiceServer(s, &fakeRuntime{name: "containerd"})
	})
}

// staleSocket is what a killed runtime leaves behind.
func staleSocket(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(shortDir(t), "stale.sock")
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	lis.SetUnlinkOnClose(false)
	lis.Close()
	return socket
}

func TestChoose(t *testing.T) {
	live, stale := serveCRI(t), staleSocket(t)
	mute := serve(t, func(*grpc.Server) {})
	missing := filepath.Join(shortDir(t), "missing.sock")
	tests := []struct {
		name, endpoint string
		usual          []string
		want           target
		said, err      string
	}{
		{"nothing there", "", []string{missing}, target{}, "", ""},
		{"stale file does not win", "", []string{missing, stale, live}, target{"containerd", live}, "nobody listens", ""},
		{"no CRI plugin", "", []string{mute, live}, target{"containerd", live}, "serves no CRI", ""},
		{"only a stale file", "", []string{stale}, target{}, "passing over " + stale, ""},
		{"named", "unix://" + live, []string{missing}, target{"containerd", live}, "", ""},
		{"named by path", live, nil, target{"containerd", live}, "", ""},
		{"named but stale", "unix://" + stale, []string{live}, target{}, "", "nobody listens"},
		{"named but missing", missing, []string{live}, target{}, "", "not there"},
		{"named badly", "tcp://localhost:1", []string{live}, target{}, "", "not unix://"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var said strings.Builder
			got, err := choose(t.Context(), tt.endpoint, tt.usual, func(format string, args ...any) {
				fmt.Fprintf(&said, format, args...)
			})
			if got != tt.want {
				t.Errorf("chose %+v, want %+v", got, tt.want)
			}
			if (tt.said == "") != (said.Len() == 0) || !strings.Contains(said.String(), tt.said) {
				t.Errorf("said %q, want %q", said.String(), tt.said)
			}
			if (tt.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

// newRunner makes a runner whose plegd is this test binary.
func newRunner(t *testing.T, usual ...string) (r runner, stdout, stderr *logtest.Buffer) {
	t.Helper()
	t.Setenv("MAKERUN_FAKE_PLEGD", "1")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr = &logtest.Buffer{}, &logtest.Buffer{}
	return runner{
		plegd: exe, dir: filepath.Join(shortDir(t), ".plegd"), args: []string{"--output", "json"},
		getenv: func(string) string { return "" }, usual: usual, stdout: stdout, stderr: stderr,
	}, stdout, stderr
}

func TestRunOnRealRuntime(t *testing.T) {
	live := serveCRI(t)
	r, stdout, stderr := newRunner(t, live)
	code, err := r.run(t.Context())
	if code != 7 || err != nil {
		t.Errorf("ended with %d, %v; want plegd's own code 7", code, err)
	}
	want := fmt.Sprintf("called with run --runtime-endpoint unix://%s --state-dir %[2]s/containerd --socket %[2]s/plegd.sock --output json\n", live, r.dir)
	if stdout.String() != want {
		t.Errorf("stdout %q, want %q", stdout, want)
	}
	if said := stderr.String(); !strings.Contains(said, "running on containerd, "+live) || strings.Contains(said, "SIMULATED") {
		t.Errorf("said %q", said)
	}
}

func TestRunOnSimulatedRuntime(t *testing.T) {
	r, stdout, stderr := newRunner(t, staleSocket(t))
	sim := filepath.Join(r.dir, "sim.sock")
	for range 2 { // the second finds the socket file that the first has left
		if _, err := r.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(stderr.String(), "SIMULATED one, "+sim) || !strings.Contains(stdout.String(), "unix://"+sim) {
			t.Errorf("stdout %q, stderr %q", stdout, stderr)
		}
		if _, err := runtimes.Probe(t.Context(), sim); err == nil {
			t.Error("the simulated runtime still answers after the end")
		}
	}
}

func TestEndIsPassedOn(t *testing.T) {
	r, stdout, _ := newRunner(t)
	t.Setenv("MAKERUN_FAKE_WAITS", "1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.run(ctx)
		done <- err
	}()
	for deadline := time.Now().Add(10 * time.Second); stdout.String() == "" && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("plegd was not asked to end")
	}
	if _, err := runtimes.Probe(t.Context(), filepath.Join(r.dir, "sim.sock")); err == nil {
		t.Error("the simulated runtime still answers after the end")
	}
}

// What is chosen here can't be given to plegd too, and nothing is started before that is said.
func TestChosenFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"--output", "json", "--socket", "/x"}, {"--runtime-endpoint=/x"}, {"-state-dir", "/x"}} {
		r, stdout, stderr := newRunner(t)
		r.args = args
		if _, err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), "CONTAINER_RUNTIME_ENDPOINT") {
			t.Errorf("%q: error %v", args, err)
		}
		if said := stdout.String() + stderr.String(); said != "" {
			t.Errorf("%q: said %q", args, said)
		}
	}
	r, _, _ := newRunner(t)
	r.args = []string{"--socket-mode", "0600", "--output", "none"}
	if code, err := r.run(t.Context()); code != 7 || err != nil {
		t.Errorf("other flags: code %d, %v", code, err)
	}
}

func TestUnwritableFolder(t *testing.T) {
	r, _, _ := newRunner(t)
	r.dir = "/proc/plegd"
	if _, err := r.run(t.Context()); err == nil || !strings.Contains(err.Error(), "/proc/plegd") {
		t.Errorf("error %v, want one that names the folder", err)
	}
}
