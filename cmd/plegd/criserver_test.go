package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// The CRI endpoint is there when it is asked for, says what the runtime says,
// refuses what changes something, and ends with the agent.
func TestCRIEndpoint(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	socket := filepath.Join(string(dir), "cri", "s")
	gid := os.Getgid() // another one takes root's rights
	if os.Getuid() == 0 {
		gid = 4711
	}
	c := start(t, dir.args("unix://"+endpoint, "--cri-socket", "unix://"+socket, "--cri-socket-group", strconv.Itoa(gid), "--output", "none")...)
	dir.awaitReady(t)
	pod := newPod(t, rt, "web")
	conn := simtest.Dial(t, socket)
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	eventually(t, "the pod is listed", func() bool {
		r, err := cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		return err == nil && len(r.GetItems()) == 1 && r.GetItems()[0].GetId() == pod
	})
	if v, err := cri.Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil || v.GetRuntimeName() != "containerd" {
		t.Error(v, err)
	}
	if _, err := cri.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod}); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 || int(info.Sys().(*syscall.Stat_t).Gid) != gid {
		t.Errorf("socket: %+v %v", info, err)
	}
	events, err := cri.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err == nil {
		_, err = events.Header()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.terminate() // in time, in spite of the stream
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// Without the flag there is none, and while there is no runtime it says so.
func TestCRIEndpointWithoutRuntime(t *testing.T) {
	t.Parallel()
	dir := newAgentDir(t)
	socket := filepath.Join(string(dir), "cri.sock")
	c := start(t, dir.args(filepath.Join(string(dir), "nobody"), "--cri-socket", socket, "--output", "none")...)
	cri := runtimeapi.NewRuntimeServiceClient(simtest.Dial(t, socket))
	eventually(t, "it says why", func() bool {
		_, err := cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "plegd: ") && strings.Contains(err.Error(), "nobody: no such file")
	})
	c.terminate()

	dir = newAgentDir(t)
	_, endpoint := simtest.Start(t, simruntime.Config{})
	c = start(t, dir.args(endpoint, "--output", "none")...)
	dir.awaitReady(t)
	found, err := filepath.Glob(filepath.Join(string(dir), "*", "*"))
	for _, f := range found {
		if info, err := os.Lstat(f); err == nil && info.Mode().Type() == os.ModeSocket && f != dir.socket() {
			t.Errorf("there is a socket %s", f)
		}
	}
	if err != nil || len(found) == 0 {
		t.Error(found, err)
	}
	c.terminate()
}

// The address is named with its flag, and what was taken before is given back.
func TestCRISocketInUse(t *testing.T) {
	t.Parallel()
	dir := newAgentDir(t)
	socket := filepath.Join(string(dir), "taken")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	code, _, stderr := run(t, dir.args(filepath.Join(string(dir), "none"), "--cri-socket", socket, "--output", "none")...)
	if code != exitFailure || !strings.Contains(stderr, "plegd: --cri-socket "+socket+": socket is in use, perhaps by another plegd") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if _, err := os.Lstat(dir.socket()); !os.IsNotExist(err) {
		t.Errorf("the socket of the API is left behind: %v", err)
	}
}

func TestBadCRIFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--cri-socket tcp://127.0.0.1:1":                   `--cri-socket "tcp://127.0.0.1:1": must be the path of a unix socket, /path or unix:///path`,
		"--cri-socket /" + strings.Repeat("x", 200):        "a unix socket's may have 107",
		"--socket /s --cri-socket unix:///s":               `--cri-socket "/s": is the socket of the API (--socket); it must be one of its own`,
		"--cri-socket-group 0":                             "--cri-socket-group 0: is about the CRI endpoint",
		"--cri-socket /x --cri-socket-group nobody-has-it": `--cri-socket-group "nobody-has-it": must be the name of a group`,
		"--cri-untrusted unavailable":                      "--cri-untrusted unavailable: is about the CRI endpoint; give --cri-socket too, or leave it out",
		"--cri-socket /x --cri-untrusted maybe":            `--cri-untrusted "maybe"`,
		"--cri-socket unix://":                             "--cri-socket",
	} {
		err := execute(append([]string{"run"}, strings.Fields(args)...), streams{&strings.Builder{}, &strings.Builder{}, func(string) string { return "" }})
		if code := exitCode(err); code != exitUsage || !strings.Contains(oneLine(err), want) {
			t.Errorf("%.60s: code %d, %v", args, code, err)
		}
	}
}
