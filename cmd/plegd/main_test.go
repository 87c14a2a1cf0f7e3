package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plegd/plegd/internal/logtest"
)

// childEnv makes this test binary be plegd. So what the tests drive as child
// processes is the real main, under the race detector if the tests are.
const childEnv = "PLEGD_TEST_CHILD"

// socketsEnv names the usual sockets of a child, separated by colons: a test
// must not depend on which runtimes the machine has.
const socketsEnv = "PLEGD_TEST_SOCKETS"

// verdictEnv is what a child says that bbolt's check of the state file found.
const verdictEnv = "PLEGD_TEST_VERDICT"

func TestMain(m *testing.M) {
	if verdict := os.Getenv(verdictEnv); verdict != "" && len(os.Args) > 2 && os.Args[2] == bboltCheck {
		fmt.Println(verdict)
		os.Exit(3) // damaged, see package checkchild
	}
	if list := os.Getenv(socketsEnv); list != "" {
		usualSockets = strings.Split(list, ":")
	}
	switch os.Getenv(childEnv) {
	case "plegd":
		main()
	case "stop in time", "stop in time, all written":
		ctx, cancel := context.WithCancel(context.Background())
		stopInTime(ctx, slog.New(slog.NewTextHandler(os.Stderr, nil)), func() (string, int) {
			if os.Getenv(childEnv) == "stop in time" {
				return "the disk", exitFailure
			}
			return "the readers", exitOK
		})
		cancel()
		select {} // as if the disk were hung
	case "stubborn":
		ctx, _ := stopOnSignal(context.Background())
		fmt.Fprintln(os.Stdout, "ready")
		<-ctx.Done()
		fmt.Fprintln(os.Stdout, "asked to stop")
		time.Sleep(patience) // as if something were hung
	}
	goleak.VerifyTestMain(m)
}

const (
	// patience bounds every wait for what should happen soon.
	patience = 60 * time.Second
	// stopLimit is the agent's promise.
	stopLimit = 3 * time.Second
)

// child is plegd as a child process.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    *os.File        // its stdout, to be read or not
	stderr *logtest.Buffer // complete once ended is closed
	ended  chan struct{}   // closed when it has ended
}

// childConfig is how to start one.
type childConfig struct {
	env         []string // beside the test's own
	mode        string   // "plegd" by default
	blockStderr bool     // nobody reads it
	binary      string   // the test's own by default
	as          *syscall.Credential
}

// start starts plegd with arguments, and kills it at the end of the test.
func start(t *testing.T, args ...string) *child {
	t.Helper()
	return startAs(t, childConfig{}, args...)
}

func startAs(t *testing.T, cfg childConfig, args ...string) *child {
	t.Helper()
	c := &child{t: t, stderr: &logtest.Buffer{}, ended: make(chan struct{})}
	c.cmd = exec.Command(cmp.Or(cfg.binary, os.Args[0]), args...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cfg.as}
	if cfg.mode == "" {
		cfg.mode = "plegd"
	}
	// The race detector sleeps for a second at each exit, which would count
	// against the promise to end in time.
	c.cmd.Env = append(append(os.Environ(), endpointEnv+"=", childEnv+"="+cfg.mode, "GORACE=atexit_sleep_ms=0"), cfg.env...)
	out, outW := pipe(t)
	c.out, c.cmd.Stdout = out, outW
	stderr, stderrW := pipe(t)
	c.cmd.Stderr = stderrW
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = outW.Close()
	_ = stderrW.Close()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		if !cfg.blockStderr {
			_, _ = io.Copy(c.stderr, stderr)
		}
	}()
	go func() {
		defer close(c.ended)
		_ = c.cmd.Wait() // the code is in ProcessState
		<-copied
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
		_ = out.Close()
		_ = stderr.Close()
		if t.Failed() {
			t.Logf("plegd %s\n%s", strings.Join(args, " "), c.stderr)
		}
	})
	return c
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// code waits for the end and returns the exit code.
func (c *child) code(within time.Duration) int {
	c.t.Helper()
	select {
	case <-c.ended:
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		c.t.Fatalf("still running after %v", within)
		return 0
	}
}

// terminate asks it to end and checks that it does so in time and in peace.
func (c *child) terminate() {
	c.t.Helper()
	c.signal(syscall.SIGTERM)
	if code := c.code(stopLimit); code != exitOK {
		c.t.Errorf("SIGTERM: exit code %d", code)
	}
}

func (c *child) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatalf("%v: %v", sig, err)
	}
}

// run runs plegd to its end.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	c := start(t, args...)
	out, err := io.ReadAll(c.out)
	if err != nil {
		t.Fatal(err)
	}
	return c.code(patience), string(out), c.stderr.String()
}

// agentDir is where an agent of a test has its state and socket.
type agentDir string

func newAgentDir(t *testing.T) agentDir {
	t.Helper()
	dir, err := os.MkdirTemp("", "plegd") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return agentDir(dir)
}

func (d agentDir) state() string  { return filepath.Join(string(d), "state") }
func (d agentDir) socket() string { return filepath.Join(string(d), "run", "plegd.sock") }

// args are those of an agent on a runtime; more of them win.
func (d agentDir) args(endpoint string, more ...string) []string {
	return append([]string{
		"run", "--runtime-endpoint", endpoint, "--state-dir", d.state(), "--socket", d.socket(),
		"--http-listen", "127.0.0.1:0", "--output", "json", "--relist-period", "100ms", "--node-name", "n1",
	}, more...)
}

// get asks the agent's API.
func (d agentDir) get(path string) (code int, body string, err error) {
	return get(&http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", d.socket())
	}}, "http://plegd"+path)
}

func get(tr http.RoundTripper, url string) (code int, body string, err error) {
	resp, err := (&http.Client{Transport: tr, Timeout: 5 * time.Second}).Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

var loggedAddress = regexp.MustCompile(`serving metrics and health" address=(\S+)`)

// address waits until the agent has said where it serves HTTP.
func (c *child) address() string {
	c.t.Helper()
	var found []string
	eventually(c.t, "an address is logged", func() bool {
		found = loggedAddress.FindStringSubmatch(c.stderr.String())
		return found != nil
	})
	return found[1]
}

// awaitReady waits until the agent is ready.
func (d agentDir) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, "agent is ready", func() bool {
		code, _, err := d.get("/readyz")
		return err == nil && code == http.StatusOK
	})
}

// eventually polls until done is true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v it is still not so that %s", patience, what)
		}
	}
}
