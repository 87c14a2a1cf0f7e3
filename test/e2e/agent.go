package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// agentStopTimeout is plegd's promise: SIGTERM ends it within 3 s in any state.
const agentStopTimeout = 3 * time.Second

// agent is a running plegd with JSON events on its stdout.
type agent struct {
	cmd  *exec.Cmd
	dir  string
	http string // host:port of /metrics and the rest
	api  *http.Client
	errs *os.File

	exited  chan struct{} // closed when cmd has ended
	gone    chan struct{} // closed when also all its output is read
	release func()        // lets a blocked stdout flow; may be called again

	mu     sync.Mutex
	events []event
	bad    error // the first line that was no event
}

// agentConfig says how to start plegd; what a test leaves out is the same for all.
type agentConfig struct {
	endpoint string   // the socket of the runtime, or of a proxy before it
	dir      string   // state and socket; a second agent with the same folder goes on where the first ended
	flags    []string // more flags
	blocked  bool     // nobody reads stdout until release
}

// startAgent starts plegd, and kills it when the test ends.
func startAgent(t testing.TB, c agentConfig) *agent {
	t.Helper()
	needBinary(t)
	a := &agent{dir: c.dir, http: freePort(t), exited: make(chan struct{}), gone: make(chan struct{})}
	socket := filepath.Join(c.dir, "plegd.sock")
	a.api = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, // the next agent serves on the same path
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	args := append([]string{
		"run",
		"--runtime-endpoint", "unix://" + c.endpoint,
		"--state-dir", filepath.Join(c.dir, "state"),
		"--socket", socket,
		"--http-listen", a.http,
		"--output", "json",
		"--log-level", "debug",
	}, c.flags...)
	var err error
	if a.errs, err = os.CreateTemp(c.dir, "log"); err != nil {
		t.Fatalf("start plegd: %v", err)
	}
	a.cmd = exec.Command(binary(), args...)
	a.cmd.Stderr = a.errs
	// A pipe of our own: the one of exec would keep Wait from returning while nobody reads.
	stdout, w, err := os.Pipe()
	if err != nil {
		t.Fatalf("start plegd: %v", err)
	}
	a.cmd.Stdout = w
	err = a.cmd.Start()
	_ = w.Close() // the child has its own
	if err != nil {
		t.Fatalf("start plegd: %v", err)
	}
	flow := make(chan struct{})
	a.release = sync.OnceFunc(func() { close(flow) })
	if !c.blocked {
		a.release()
	}
	go func() {
		_ = a.cmd.Wait() // its code is in cmd.ProcessState
		close(a.exited)
	}()
	go func() {
		defer close(a.gone)
		<-flow
		a.read(stdout)
		_ = stdout.Close()
		<-a.exited
	}()
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill()
		a.release()
		<-a.gone
		_ = a.errs.Close()
		if t.Failed() {
			t.Logf("events of plegd %d:\n%send of its log:\n%s", a.cmd.Process.Pid, dump(a.all()), tail(a.errs.Name(), 8192))
		}
	})
	return a
}

// freePort finds a port of 127.0.0.1. Nobody else takes ports in this network namespace.
func freePort(t testing.TB) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("free port: %v", err)
	}
	defer lis.Close()
	return lis.Addr().String()
}

// read collects the events until stdout ends. SIGKILL can cut the last line short; who goes on after
// the last whole one is told it again.
func (a *agent) read(stdout io.Reader) {
	lines := bufio.NewReader(stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		e, err := parseEvent(line)
		a.mu.Lock()
		if err == nil {
			a.events = append(a.events, e)
		} else if a.bad == nil {
			a.bad = err
		}
		a.mu.Unlock()
	}
}

// all returns the events read so far.
func (a *agent) all() []event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]event(nil), a.events...)
}

// await waits until the events satisfy done, which says what is missing.
func (a *agent) await(t testing.TB, timeout time.Duration, what string, done func([]event) error) []event {
	t.Helper()
	var events []event
	eventually(t, timeout, what, func() error {
		a.mu.Lock()
		bad := a.bad
		a.mu.Unlock()
		if bad != nil {
			t.Fatal(bad)
		}
		events = a.all()
		err := done(events)
		if err != nil {
			select {
			case <-a.gone:
				t.Fatalf("plegd ended (%v) before %s: %v", a.cmd.ProcessState, what, err)
			default:
			}
		}
		return err
	})
	return events
}

// awaitTrace waits until the entity's life reads as wanted.
func (a *agent) awaitTrace(t testing.TB, timeout time.Duration, id, want string) []event {
	t.Helper()
	return a.await(t, timeout, "life of "+id, func(events []event) error {
		if got := trace(events, id); got != want {
			return fmt.Errorf("life is %q, want %q", got, want)
		}
		return nil
	})
}

// awaitReady waits until plegd says that it knows the node.
func (a *agent) awaitReady(t testing.TB) {
	t.Helper()
	a.await(t, 20*time.Second, "plegd is ready", func([]event) error {
		code, body, err := a.get("/readyz?verbose")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("readyz: %d\n%s", code, body)
		}
		return err
	})
}

// get asks the HTTP listener on TCP.
func (a *agent) get(path string) (code int, body string, err error) {
	return fetch(&http.Client{Timeout: 5 * time.Second}, "http://"+a.http+path)
}

// getAPI asks the API on the unix socket.
func (a *agent) getAPI(t testing.TB, path string) string {
	t.Helper()
	code, body, err := fetch(a.api, "http://plegd"+path)
	if err != nil || code != http.StatusOK {
		t.Fatalf("GET %s: %d, %v\n%s", path, code, err, body)
	}
	return body
}

func fetch(client *http.Client, url string) (code int, body string, err error) {
	r, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r.StatusCode, string(b), err
}

// terminate ends plegd with SIGTERM, and checks that it keeps its promise.
func (a *agent) terminate(t testing.TB) {
	t.Helper()
	if code := a.signal(t, syscall.SIGTERM, agentStopTimeout); code != 0 {
		t.Errorf("SIGTERM ended plegd with code %d, want 0", code)
	}
}

// kill ends plegd with SIGKILL.
func (a *agent) kill(t testing.TB) { t.Helper(); a.signal(t, syscall.SIGKILL, 10*time.Second) }

func (a *agent) signal(t testing.TB, sig syscall.Signal, timeout time.Duration) (code int) {
	t.Helper()
	if err := a.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("end plegd: %v", err)
	}
	select {
	case <-a.exited:
		a.release()
		<-a.gone
		return a.cmd.ProcessState.ExitCode()
	case <-time.After(timeout):
		t.Fatalf("plegd still runs %v after %v", timeout, sig)
		return 0
	}
}

// position is the number of the newest event that plegd has published.
func (a *agent) position(t testing.TB) uint64 {
	t.Helper()
	var all servedPods
	if err := json.Unmarshal([]byte(a.getAPI(t, "/v1/pods")), &all); err != nil {
		t.Fatalf("pods: %v", err)
	}
	_, number, _ := strings.Cut(all.Position, "/")
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		t.Fatalf("position %q: %v", all.Position, err)
	}
	return seq
}

// metrics is scrape for tests whose agent is up.
func (a *agent) metrics(t testing.TB) map[string]float64 {
	t.Helper()
	series, err := a.scrape()
	if err != nil {
		t.Fatal(err)
	}
	return series
}

// scrape reads /metrics: the value of each series under its name with labels as exposed.
func (a *agent) scrape() (map[string]float64, error) {
	code, body, err := a.get("/metrics")
	switch {
	case err != nil:
		return nil, fmt.Errorf("metrics: %w", err)
	case code != http.StatusOK:
		return nil, fmt.Errorf("metrics: status %d", code)
	}
	return parseMetrics(body)
}

// parseMetrics reads the text form of metrics.
func parseMetrics(body string) (map[string]float64, error) {
	series := map[string]float64{}
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		// A label's value may hold spaces; the number is behind the last.
		i := strings.LastIndexByte(line, ' ')
		var v float64
		if _, err := fmt.Sscan(line[i+1:], &v); err != nil {
			return nil, fmt.Errorf("metrics: %q: %w", line, err)
		}
		series[line[:i]] = v
	}
	return series, nil
}
