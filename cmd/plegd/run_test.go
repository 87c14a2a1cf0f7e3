package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

// A whole life comes out; health, API and metrics are there; SIGTERM ends it.
func TestRun(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	c := start(t, dir.args("unix://"+endpoint)...)
	r := c.read()
	dir.awaitReady(t)
	pod := newPod(t, rt, "web")
	id := life(t, rt, pod, "app", 7)
	events := r.await(t, "the life is told", ends(id))
	checkOrder(t, events)
	var trace []string
	for _, ev := range events {
		if ev.Change == "" {
			trace = append(trace, string(ev.Type))
		}
		if ev.Type == store.ContainerDied && (!ev.ExitKnown || ev.ExitCode != 7) {
			t.Errorf("died with %v %d", ev.ExitKnown, ev.ExitCode)
		}
	}
	if got := strings.Join(trace, " "); got != "SandboxCreated SandboxReady ContainerCreated ContainerStarted ContainerDied ContainerRemoved" {
		t.Errorf("life is %s", got)
	}

	_, body, err := dir.get("/v1/status")
	var status pleg.Status
	if err == nil {
		err = json.Unmarshal([]byte(body), &status)
	}
	if err != nil || status.Runtime.Name != "containerd" || status.Node != "n1" || !status.Health.Ready {
		t.Errorf("status: %v %s", err, body)
	}
	if _, body, err := dir.get("/v1/pods/uid-web"); err != nil || !strings.Contains(body, `"name":"web"`) {
		t.Errorf("pod: %v %s", err, body)
	}
	for path, want := range map[string]string{
		"/metrics": "plegd_build_info{", "/livez": "ok", "/readyz?verbose": "[+]relist ok",
	} {
		code, body, err := get(&http.Transport{DisableKeepAlives: true}, "http://"+c.address()+path)
		if err != nil || code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %v\n%s", path, code, err, body)
		}
	}
	if code, _, err := get(&http.Transport{DisableKeepAlives: true}, "http://"+c.address()+"/v1/pods"); err != nil || code != http.StatusNotFound {
		t.Errorf("pods on TCP: %d %v", code, err)
	}
	info, err := os.Stat(dir.socket())
	if err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("socket: %v %v", info, err)
	}
	if info, err := os.Stat(dir.state()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("state directory: %v %v", info, err)
	}
	c.terminate()
	if _, err := os.Stat(dir.socket()); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// SIGTERM and SIGINT end the agent in time whatever its runtime does.
func TestStopWithRuntimeInTrouble(t *testing.T) {
	t.Parallel()
	t.Run("hung from the start", func(t *testing.T) {
		rt, endpoint := simtest.Start(t, simruntime.Config{})
		simtest.Rule(t, rt, simruntime.Rule{Hang: true, IgnoreCancel: true})
		c := start(t, newAgentDir(t).args(endpoint)...)
		c.address()
		time.Sleep(300 * time.Millisecond) // calls are in flight
		c.terminate()
	})
	t.Run("hung later", func(t *testing.T) {
		rt, endpoint := simtest.Start(t, simruntime.Config{})
		dir := newAgentDir(t)
		c := start(t, dir.args(endpoint)...)
		r := c.read()
		dir.awaitReady(t)
		id := life(t, rt, newPod(t, rt, "web"), "app", 0)
		r.await(t, "the life is told", ends(id))
		simtest.Rule(t, rt, simruntime.Rule{Hang: true, IgnoreCancel: true})
		time.Sleep(300 * time.Millisecond)
		c.signal(syscall.SIGINT)
		if code := c.code(stopLimit); code != exitOK {
			t.Errorf("code %d", code)
		}
	})
	t.Run("a frozen process", func(t *testing.T) { // accepts, and never greets
		path := filepath.Join(string(newAgentDir(t)), "frozen.sock")
		lis, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer lis.Close()
		c := start(t, newAgentDir(t).args(path)...)
		c.address()
		c.terminate()
	})
}

// A socket that isn't there is no error: /readyz says why nothing is known,
// and when the runtime comes all is well.
func TestAbsentSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(string(newAgentDir(t)), "late.sock")
	dir := newAgentDir(t)
	c := start(t, dir.args("unix://"+path)...)
	eventually(t, "readyz names the socket and the reason", func() bool {
		code, body, err := dir.get("/readyz")
		return err == nil && code == http.StatusServiceUnavailable &&
			strings.Contains(body, "[-]relist failed: no relist of "+path) && strings.Contains(body, "no such file")
	})
	if code, _, err := dir.get("/livez"); err != nil || code != http.StatusOK {
		t.Errorf("livez: %d %v", code, err)
	}
	for _, path := range []string{"/v1/pods", "/v1/pods/uid-web"} { // unknown is not empty
		if code, body, err := dir.get(path); err != nil || code != http.StatusServiceUnavailable || !strings.Contains(body, "no such file") {
			t.Errorf("%s: %d %s %v", path, code, body, err)
		}
	}

	rt := simtest.New(t, simruntime.Config{})
	newPod(t, rt, "web")
	lis, err := simruntime.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	r := c.read()
	simtest.Serve(t, rt, lis)
	r.await(t, "the pod is told", func(ev store.Event) bool { return ev.Type == store.SandboxReady })
	dir.awaitReady(t)
	c.terminate()
}

// SIGTERM before the runtime ever came.
func TestStopWithoutRuntime(t *testing.T) {
	t.Parallel()
	c := start(t, newAgentDir(t).args("/nonexistent/plegd/cri.sock")...)
	c.address()
	c.terminate()
}

// Without an endpoint, and without a runtime in the usual places, the agent
// serves health and says where it has looked.
func TestNoRuntimeFound(t *testing.T) {
	t.Parallel()
	dir := newAgentDir(t)
	absent := filepath.Join(string(dir), "absent.sock")
	c := startAs(t, childConfig{env: []string{socketsEnv + "=" + absent}},
		"run", "--state-dir", dir.state(), "--socket", dir.socket(), "--http-listen", "127.0.0.1:0")
	eventually(t, "readyz says where it looked", func() bool {
		code, body, err := dir.get("/readyz")
		return err == nil && code == http.StatusServiceUnavailable && strings.Contains(body, absent+": not there")
	})
	if code, _, err := dir.get("/livez"); err != nil || code != http.StatusOK {
		t.Errorf("livez: %d %v", code, err)
	}
	if code, body, err := dir.get("/v1/status"); err != nil || code != http.StatusServiceUnavailable || !strings.Contains(body, "no CRI runtime") {
		t.Errorf("status: %d %v %s", code, err, body)
	}
	c.terminate()
}

// A state that is there says which runtime is meant, though nobody has named
// one: another that comes up first is not taken.
func TestStateNamesTheRuntime(t *testing.T) {
	t.Parallel()
	dir := newAgentDir(t)
	first, mine := filepath.Join(string(dir), "first.sock"), filepath.Join(string(dir), "mine.sock")
	cfg := childConfig{env: []string{socketsEnv + "=" + first + ":" + mine}}
	args := []string{"run", "--state-dir", dir.state(), "--socket", dir.socket(), "--http-listen", "127.0.0.1:0",
		"--output", "json", "--relist-period", "100ms"}

	rt := simtest.New(t, simruntime.Config{Seed: 1})
	stop := serveAt(t, rt, mine) // the only one at the first start
	newPod(t, rt, "mine")
	c := startAs(t, cfg, args...)
	c.read().await(t, "the pod is told", func(ev store.Event) bool { return ev.Type == store.SandboxReady })
	c.terminate()

	stop()
	other := simtest.New(t, simruntime.Config{Seed: 2})
	serveAt(t, other, first) // comes up earlier at the second
	newPod(t, other, "other")
	c = startAs(t, cfg, args...)
	r := c.read()
	eventually(t, "its own runtime is waited for", func() bool {
		_, body, err := dir.get("/readyz")
		return err == nil && strings.Contains(body, "no relist of "+mine)
	})
	late := newPod(t, rt, "late")
	serveAt(t, rt, mine)
	for _, ev := range r.await(t, "the new pod is told", func(ev store.Event) bool { return ev.SandboxID == late }) {
		if ev.Pod.Name == "other" {
			t.Errorf("%s of the other runtime", ev.Type)
		}
	}
	c.terminate()
}

// An agent that finds its state in use says so, before it looks for a runtime.
func TestStateInUseWithoutEndpoint(t *testing.T) {
	t.Parallel()
	dir, other := newAgentDir(t), newAgentDir(t)
	first := start(t, dir.args("/x.sock")...)
	first.address()
	code, _, stderr := run(t, "run", "--state-dir", dir.state(), "--socket", other.socket(), "--http-listen", "127.0.0.1:0")
	if code != exitLocked || !strings.Contains(lastLine(stderr), dir.state()) {
		t.Errorf("code %d: %s", code, stderr)
	}
	first.terminate()
}

// Addresses that are taken are one clear error.
func TestAddressesInUse(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	dir := newAgentDir(t)
	code, _, stderr := run(t, dir.args("/x.sock", "--http-listen", lis.Addr().String())...)
	want := fmt.Sprintf("plegd: --http-listen %s: address already in use: perhaps by another plegd; give another address, or \"\" for none", lis.Addr())
	if code != exitFailure || lastLine(stderr) != want {
		t.Errorf("code %d: %s", code, stderr)
	}
	first := start(t, dir.args("/x.sock")...)
	first.address()
	other := newAgentDir(t)
	code, _, stderr = run(t, other.args("/x.sock", "--socket", dir.socket())...)
	if code != exitFailure || !strings.HasPrefix(lastLine(stderr), "plegd: --socket "+dir.socket()+": socket is in use") {
		t.Errorf("code %d: %s", code, stderr)
	}
	first.terminate()
	file := filepath.Join(string(other), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr = run(t, other.args("/x.sock", "--socket", filepath.Join(file, "s"))...)
	if want := fmt.Sprintf("plegd: --socket %s/s: mkdir %s: not a directory", file, file); code != exitFailure || lastLine(stderr) != want {
		t.Errorf("code %d: %s", code, stderr)
	}
}

// Who may not write into the default places is told what to do; a place of one's own is known.
func TestDefaultPlacesAreRoots(t *testing.T) {
	socket := func(err error) error { return &server.AddressError{Field: "Socket", Address: "/s", Err: err} }
	state := fmt.Errorf("%w: %w", store.ErrUnwritable, syscall.EACCES)
	const advice = "; run as root, or give --socket, --state-dir and --runtime-endpoint of your own"
	for _, tc := range []struct {
		socket, stateDir string
		err              error
		advised          bool
	}{
		{defaultSocket, "/x", socket(syscall.EACCES), true},
		{"/x.sock", defaultStateDir, socket(syscall.EACCES), false},
		{defaultSocket, defaultStateDir, socket(syscall.ENOTDIR), false},
		{"/x.sock", defaultStateDir, state, true},
		{defaultSocket, "/x", state, false},
		{defaultSocket, defaultStateDir, fmt.Errorf("%w: %w", store.ErrUnwritable, syscall.EROFS), false},
	} {
		o := runOptions{socket: tc.socket, stateDir: tc.stateDir}
		got := o.ownPlaces(tc.err)
		if want := tc.err.Error(); !tc.advised && got.Error() != want || tc.advised && got.Error() != want+advice || !errors.Is(got, tc.err) {
			t.Errorf("%+v: %v", tc, got)
		}
	}
}

// ModeEvented on a runtime without a stream has a code of its own.
func TestUnsupportedStream(t *testing.T) {
	t.Parallel()
	_, endpoint := simtest.Start(t, simruntime.Config{Profile: simruntime.Profile{Name: "containerd", Version: "1.6.20", NoEvents: true}})
	code, _, stderr := run(t, newAgentDir(t).args(endpoint, "--mode", "evented")...)
	if strings.Contains(stderr, "relists have to do") { // there are none in this mode
		t.Errorf("logged %s", stderr)
	}
	want := "plegd: --mode evented: the runtime has no GetContainerEvents; use --mode hybrid or generic"
	if code != exitUnsupported || lastLine(stderr) != want {
		t.Errorf("code %d: %s", code, stderr)
	}
}

// What hangs doesn't hold up the end, whose line says what it was. The code is
// that of a failure only if something may not be written.
func TestStopInTime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mode, want string
		code       int
	}{
		{"stop in time", "level=ERROR msg=\"stop takes too long, ending as in a crash; what is new may not be written\" after=2.5s waits_for=\"the disk\"", exitFailure},
		{"stop in time, all written", "level=WARN msg=\"stop takes too long, ending without what is left; all is written\" after=2.5s waits_for=\"the readers\"", exitOK},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			c := startAs(t, childConfig{mode: tc.mode})
			if code := c.code(patience); code != tc.code || !strings.Contains(c.stderr.String(), tc.want) {
				t.Errorf("code %d: %s", code, c.stderr)
			}
		})
	}
}

// What is waited for when an end takes too long.
func TestRestOfAnEnd(t *testing.T) {
	t.Parallel()
	gen, err := pleg.New(pleg.Config{Endpoint: "/nowhere.sock"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = gen.Close() }()
	for _, tc := range []struct {
		name string
		a    *agent
		code int
	}{
		{"nothing was opened yet", &agent{}, exitOK},
		{"the generator goes on", &agent{generator: gen}, exitFailure},
		{"the generator has ended", &agent{generator: gen, ran: true}, exitOK},
		{"it could not write", &agent{generator: gen, ran: true, failed: fmt.Errorf("x: %w", store.ErrFull)}, exitUnwritable},
	} {
		if waits, code := tc.a.rest(); code != tc.code || waits == "" {
			t.Errorf("%s: %q, code %d, want %d", tc.name, waits, code, tc.code)
		}
	}
}

// A Ctrl-C reaches a whole process group, and a wrapper in it forwards it once
// more: that is one request. A signal that comes later doesn't wait for
// anything.
func TestSecondSignalEndsAtOnceButNotTheForwardedFirst(t *testing.T) {
	t.Parallel()
	c := startAs(t, childConfig{mode: "stubborn"})
	lines := bufio.NewReader(c.out)
	await := func(want string) {
		t.Helper()
		if line, err := lines.ReadString('\n'); err != nil || line != want+"\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	await("ready")
	c.signal(syscall.SIGINT)
	await("asked to stop")
	c.signal(syscall.SIGINT)
	c.signal(syscall.SIGTERM)
	time.Sleep(signalGrace + 500*time.Millisecond)
	select {
	case <-c.ended:
		t.Fatalf("a forwarded signal has ended it: %v", c.cmd.ProcessState)
	default:
	}
	c.signal(syscall.SIGINT)
	_ = c.code(patience)
	if st, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !st.Signaled() || st.Signal() != syscall.SIGINT {
		t.Errorf("ended with %v", c.cmd.ProcessState)
	}
}

// A terminal that goes away stops the agent as cleanly as Ctrl-C.
func TestHangupStops(t *testing.T) {
	t.Parallel()
	// Where these tests run under nohup, what they start would ignore the signal too.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	_, endpoint := simtest.Start(t, simruntime.Config{})
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint)...)
	dir.awaitReady(t)
	c.signal(syscall.SIGHUP)
	if code := c.code(stopLimit); code != exitOK {
		t.Errorf("ended with %v", c.cmd.ProcessState)
	}
}

// lastLine is where the error stands; the log comes before it.
func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
