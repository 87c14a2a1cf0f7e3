package trial_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/internal/compare/trial"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// childEnv makes this test binary be a child of a trial.
const childEnv = "PLEGD_TRIAL_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		if err := compare.Run(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	_ = os.Setenv(childEnv, "1")
	goleak.VerifyTestMain(m)
}

// load is a load of the test's own.
type load struct {
	begin   func(ctx context.Context) error
	mu      sync.Mutex
	called  []string
	history []compare.Happened
}

func (l *load) note(word string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.called = append(l.called, word)
}

func (l *load) calls() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.called, " ")
}

func (l *load) Begin(ctx context.Context) error {
	l.note("begin")
	if l.begin == nil {
		return nil
	}
	return l.begin(ctx)
}
func (l *load) Halt()                                { l.note("halt") }
func (l *load) Remove() error                        { l.note("remove"); return nil }
func (l *load) History() ([]compare.Happened, error) { l.note("history"); return l.history, nil }
func (l *load) Words() string                        { return "the test's own" }

func config(t *testing.T, socket, modes string) trial.Config {
	t.Helper()
	m, err := compare.ParseModes(modes)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	return trial.Config{
		Modes: m, Endpoint: socket, RPCTimeout: 5 * time.Second, For: 2 * time.Second, Late: 500 * time.Millisecond,
		Child: trial.Self(),
	}
}

// pod lets a pod with one container come and run.
func pod(rt *simruntime.Runtime, name string) error {
	sandbox, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "shop", Name: name, UID: "uid-" + name})
	if err != nil {
		return err
	}
	id, err := rt.CreateContainer(sandbox, simruntime.ContainerSpec{Name: "app"})
	if err != nil {
		return err
	}
	return rt.StartContainer(id)
}

// leftNothing checks that no directory and no child is left.
func leftNothing(t *testing.T) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if kids := children(t); len(kids) > 0 {
		t.Errorf("children %v are left", kids)
	}
}

// children lists the child processes of this one.
func children(t *testing.T) (pids []int) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		t.Skip("the kernel does not list children")
	}
	for _, path := range lists {
		text, _ := os.ReadFile(path) // a thread may end meanwhile
		for word := range strings.FieldsSeq(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

func mode(t *testing.T, r *compare.Report, name string) *compare.ModeReport {
	t.Helper()
	i := slices.IndexFunc(r.Modes, func(m compare.ModeReport) bool { return m.Name == name })
	if i < 0 {
		t.Fatalf("no mode %s in %+v", name, r.Modes)
	}
	return &r.Modes[i]
}

// The whole course: what happens is told by each mode, the load is halted before
// and removed after the closing relist, and nothing is left.
func TestTrial(t *testing.T) {
	rt, socket := simtest.Start(t, simruntime.Config{Seed: 1})
	if err := pod(rt, "old"); err != nil {
		t.Fatal(err)
	}
	l := &load{begin: func(context.Context) error { return pod(rt, "new") }}
	cfg := config(t, socket, "generic=100ms,evented,hybrid,hinted=100ms")
	cfg.Load = l
	r, err := trial.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	// The sandbox's two transitions and the container's two, and none of the old pod.
	if len(r.Transitions) != 4 || r.Transitions[0].Pod.Name != "new" {
		t.Errorf("transitions %+v", r.Transitions)
	}
	for _, m := range r.Modes {
		if m.Told != 4 || len(m.Findings) > 0 || m.Cost.CPU < 0 || m.All.N != 4 || m.NotRun+m.Ended != "" {
			t.Errorf("%s: %+v", m.Name, m)
		}
	}
	if mode(t, r, "generic=100ms").Cost.Total.Calls < 10 || mode(t, r, "evented").Cost.Total.Calls > 10 {
		t.Errorf("calls: %+v, %+v", mode(t, r, "generic=100ms").Cost, mode(t, r, "evented").Cost)
	}
	if r.Runtime.PID != os.Getpid() || r.Runtime.Unknown != "" || r.Runtime.Name != "containerd" || r.OwnCPU == 0 {
		t.Errorf("runtime %+v, own CPU %v", r.Runtime, r.OwnCPU)
	}
	if got := l.calls(); got != "begin halt remove history" || r.Load != "the test's own" {
		t.Errorf("load was called: %s", got)
	}
	leftNothing(t)
}

// A runtime that goes away in the middle ends the measurement, and the report is
// about the time before.
func TestRuntimeGoesAway(t *testing.T) {
	rt, socket := simtest.Start(t, simruntime.Config{Seed: 1})
	cfg := config(t, socket, "generic=100ms,hybrid")
	cfg.For, cfg.GoneAfter = time.Minute, time.Second
	cfg.Load = &load{begin: func(context.Context) error {
		defer time.AfterFunc(2500*time.Millisecond, rt.Down)
		return pod(rt, "new")
	}}
	r, err := trial.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Notes) == 0 || !strings.Contains(r.Notes[0], "the runtime went away after") || r.Cut == "" || time.Duration(r.To-r.From) > 10*time.Second {
		t.Errorf("notes %q, %v long", r.Notes, time.Duration(r.To-r.From))
	}
	for _, m := range r.Modes {
		if m.Told != 4 || m.Missed != 0 {
			t.Errorf("%s: %+v", m.Name, m)
		}
		for _, n := range m.Notes { // nobody is there to be listed
			if strings.Contains(n.Text, "the closing relist failed") {
				t.Errorf("%s: %s", m.Name, n.Text)
			}
		}
	}
	leftNothing(t)
}

// One that comes back is waited for.
func TestRuntimeRestarts(t *testing.T) {
	rt, socket := simtest.Start(t, simruntime.Config{Seed: 1})
	cfg := config(t, socket, "generic=100ms,hybrid")
	cfg.For = 6 * time.Second
	cfg.Load = &load{begin: func(context.Context) error {
		rt.Down()
		time.AfterFunc(1500*time.Millisecond, func() {
			rt.Up()
			if err := pod(rt, "new"); err != nil {
				t.Error(err)
			}
		})
		return nil
	}}
	r, err := trial.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Notes) != 0 || r.Cut != "" || len(r.Transitions) != 4 || r.Modes[0].Told != 4 || r.Modes[1].Told != 4 {
		t.Errorf("notes %q, %d transitions, told %d and %d", r.Notes, len(r.Transitions), r.Modes[0].Told, r.Modes[1].Told)
	}
}

// A mode whose process dies is judged up to then, and the others go on.
func TestChildDies(t *testing.T) {
	rt, socket := simtest.Start(t, simruntime.Config{Seed: 1})
	cfg := config(t, socket, "hybrid")
	before := children(t)
	cfg.Modes = append(cfg.Modes, compare.Mode{Name: "generic=100ms", Kind: compare.Generic, Period: 100 * time.Millisecond})
	cfg.Load = &load{begin: func(context.Context) error {
		kids := slices.DeleteFunc(children(t), func(pid int) bool { return slices.Contains(before, pid) })
		time.AfterFunc(1500*time.Millisecond, func() { _ = syscall.Kill(slices.Max(kids), syscall.SIGKILL) })
		return pod(rt, "new")
	}}
	r, err := trial.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	died, other := r.Modes[0], r.Modes[1]
	if died.Ended == "" {
		died, other = other, died
	}
	if !strings.Contains(died.Ended, "signal: killed") || died.Told != 4 || other.Ended != "" || other.Told != 4 {
		t.Errorf("died: %+v\nother: %+v", died, other)
	}
	leftNothing(t)
}

// Ctrl-C ends the measurement; there is a report, and the load is removed.
func TestInterrupted(t *testing.T) {
	rt, socket := simtest.Start(t, simruntime.Config{Seed: 1})
	cfg := config(t, socket, "generic=100ms")
	cfg.For = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{begin: func(context.Context) error {
		time.AfterFunc(time.Second, cancel)
		return pod(rt, "new")
	}}
	cfg.Load = l
	r, err := trial.Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Notes) != 1 || !strings.HasPrefix(r.Notes[0], "interrupted after") || r.Modes[0].Told != 4 || l.calls() != "begin halt remove history" {
		t.Errorf("notes %q, %+v, load %s", r.Notes, r.Modes[0], l.calls())
	}
	leftNothing(t)
}

// Enough transitions are enough.
func TestTransitions(t *testing.T) {
	rt, socket := simtest.Start(t, simruntime.Config{Seed: 1})
	cfg := config(t, socket, "hybrid")
	cfg.For, cfg.Transitions = 0, 4
	cfg.Load = &load{begin: func(context.Context) error { return pod(rt, "new") }}
	began := time.Now()
	r, err := trial.Run(t.Context(), cfg)
	if err != nil || len(r.Transitions) != 4 || time.Since(began) > patience {
		t.Errorf("%v, after %v: %+v", err, time.Since(began), r)
	}
}

// patience bounds what should happen soon.
const patience = 30 * time.Second

// What keeps a trial from a report is one clear error, and nothing is left of it.
func TestNoTrial(t *testing.T) {
	_, old := simtest.Start(t, simruntime.Config{Profile: simruntime.Containerd16})
	_, socket := simtest.Start(t, simruntime.Config{Seed: 1})
	broken := errors.New("image gone")
	l := &load{begin: func(context.Context) error { return broken }}
	for _, tc := range []struct {
		name, socket, modes string
		load                trial.Load
		child               []string
		want                string
	}{
		{"nobody there", "/nonexistent/x.sock", "hybrid", nil, nil, "runtime /nonexistent/x.sock: not there"},
		{"no stream", old, "evented", nil, nil, "no mode could be run: evented: event stream is not supported by the runtime"},
		{"load fails", socket, "hybrid", l, nil, "image gone"},
		{"no child", socket, "hybrid", nil, []string{"/nonexistent/plegd"}, "mode hybrid: fork/exec /nonexistent/plegd"},
		{"a child that is none", socket, "hybrid", nil, []string{"/bin/echo", "hello"}, "not a line of a comparison"},
		{"a child that fails", socket, "hybrid", nil, []string{"/bin/sh", "-c", "echo no memory >&2; exit 3"}, "its process ended: exit status 3: no memory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := config(t, tc.socket, tc.modes)
			cfg.Load = tc.load
			if tc.child != nil {
				cfg.Child = tc.child
			}
			r, err := trial.Run(t.Context(), cfg)
			if r != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			leftNothing(t)
		})
	}
	if l.calls() != "begin remove" {
		t.Errorf("the load that failed was called: %s", l.calls())
	}
}
