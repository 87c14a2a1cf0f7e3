package pleg_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// TestRunEnds: Run returns within three seconds of its context's end in every
// state, and the state can be opened at once.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	frozen := simruntime.Rule{Hang: true, IgnoreCancel: true}
	tests := map[string]func(t *testing.T, rt *simruntime.Runtime){
		"healthy": func(*testing.T, *simruntime.Runtime) {},
		"frozen":  func(t *testing.T, rt *simruntime.Runtime) { simtest.Rule(t, rt, frozen) },
		"absent":  func(_ *testing.T, rt *simruntime.Runtime) { rt.Down() },
		"failing": func(t *testing.T, rt *simruntime.Runtime) { simtest.Rule(t, rt, simruntime.Rule{Code: codes.Internal}) },
		"lists hang": func(t *testing.T, rt *simruntime.Runtime) {
			f := frozen
			f.Method = "StreamContainers"
			simtest.Rule(t, rt, f)
		},
		"status hangs": func(t *testing.T, rt *simruntime.Runtime) {
			f := frozen
			f.Method = "ContainerStatus"
			simtest.Rule(t, rt, f)
		},
		"stream hangs": func(t *testing.T, rt *simruntime.Runtime) {
			f := frozen
			f.Method = "GetContainerEvents"
			simtest.Rule(t, rt, f)
		},
	}
	for name, trouble := range tests {
		for _, first := range []bool{true, false} { // trouble from the start, or once all is well
			when := map[bool]string{true: " from the start", false: " later"}[first]
			t.Run(name+when, func(t *testing.T) {
				t.Parallel()
				rt, path := simtest.Start(t, simruntime.Config{})
				pod(t, rt, "a")
				if first {
					trouble(t, rt)
				}
				cfg := pleg.Config{Endpoint: path, StateDir: t.TempDir(), RelistPeriod: 20 * time.Millisecond}
				a := startAgent(t, cfg, nil)
				if !first {
					a.streamUp()
					a.settle()
					trouble(t, rt)
					_, err := rt.RunPodSandbox(simruntime.PodSpec{Name: "b", UID: "uid-b"})
					if err != nil && name != "absent" {
						t.Fatal(err)
					}
				}
				time.Sleep(100 * time.Millisecond)
				began := time.Now()
				if err := a.stop(); err != nil {
					t.Errorf("run: %v", err)
				}
				if took := time.Since(began); took > 3*time.Second {
					t.Errorf("it took %v", took)
				}
				g, err := pleg.New(cfg)
				if err != nil {
					t.Fatalf("the state can't be opened again: %v", err)
				}
				must(t, g.Close())
			})
		}
	}
}

// TestReadersOfAStoppedGenerator: each way to wait ends with ErrStopped.
func TestReadersOfAStoppedGenerator(t *testing.T) {
	_, path := simtest.Start(t, simruntime.Config{})
	a := startAgent(t, pleg.Config{Endpoint: path, RelistPeriod: 20 * time.Millisecond}, nil)
	a.settle()
	waiting := make(chan error, 1)
	go func() { _, err := a.sub.Next(context.Background()); waiting <- err }()
	a.finish()
	ctx := context.Background()
	_, newer := a.g.PodNewer(ctx, "u")
	for what, err := range map[string]error{"a subscription": <-waiting, "a pod": newer, "a relist": a.g.Relist(ctx)} {
		if !errors.Is(err, pleg.ErrStopped) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := a.g.Run(ctx); !errors.Is(err, pleg.ErrRan) {
		t.Errorf("a second run: %v", err)
	}
	if err := a.g.Close(); err != nil {
		t.Errorf("close after the run: %v", err)
	}
	if s := a.g.Status(); s.Position == "" {
		t.Error("no status after the end")
	}
}

// TestCloseWithoutRun releases the state and whoever waits; while a generator
// runs, Close leaves it alone.
func TestCloseWithoutRun(t *testing.T) {
	cfg := pleg.Config{Endpoint: filepath.Join(t.TempDir(), "none.sock"), StateDir: t.TempDir()}
	g, err := pleg.New(cfg)
	must(t, err)
	sub, err := g.Subscribe(nil)
	must(t, err)
	must(t, g.Close())
	must(t, g.Close())
	if _, err := sub.Next(t.Context()); !errors.Is(err, pleg.ErrStopped) {
		t.Errorf("a reader gets %v", err)
	}
	if err := g.Run(t.Context()); !errors.Is(err, pleg.ErrRan) {
		t.Errorf("run after close: %v", err)
	}
	rt, path := simtest.Start(t, simruntime.Config{})
	cfg.Endpoint, cfg.StateDir, cfg.RelistPeriod = path, t.TempDir(), 20*time.Millisecond
	a := startAgent(t, cfg, nil)
	a.settle()
	must(t, a.g.Close())
	pod(t, rt, "a")
	a.settle()
	a.agree(rt)
	a.finish()
}

// TestRunFailsWithoutAFirstWrite: a state that may not be written from the start
// ends the run with that error, and everything that was started with it. (A full
// disk doesn't, see D2.)
func TestRunFailsWithoutAFirstWrite(t *testing.T) {
	_, path := simtest.Start(t, simruntime.Config{})
	cfg := pleg.WithStore(pleg.Config{Endpoint: path}, func(s store.Store) store.Store {
		f := storetest.NewFaulty(s)
		f.FailBefore(-1, store.ErrUnwritable)
		return f
	})
	a := startAgent(t, cfg, nil)
	select {
	case err := <-a.done:
		if !errors.Is(err, store.ErrUnwritable) {
			t.Errorf("run: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the agent goes on")
	}
	if _, err := a.sub.Next(t.Context()); !errors.Is(err, pleg.ErrStopped) {
		t.Errorf("a reader gets %v", err)
	}
}

// TestEndingSaysWhatIsWaitedFor: the disk while something is to be written, and
// once all is written nothing that matters.
func TestEndingSaysWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	inBubble(t, simruntime.Config{}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
		var faulty *storetest.Faulty
		a := startAgent(t, pleg.WithStore(cfg, func(s store.Store) store.Store { faulty = storetest.NewFaulty(s); return faulty }), nil)
		time.Sleep(time.Minute)
		if e := a.g.Ending(); e != pleg.NotEnding {
			t.Errorf("while it runs: %v", e)
		}
		release := faulty.Hold()
		pod(t, rt, "b") // there is something to write
		time.Sleep(time.Second)
		a.cancel()
		time.Sleep(10 * time.Second)
		if e := a.g.Ending(); e != pleg.EndingWrites || e.String() != "the state to be written" {
			t.Errorf("with a disk that hangs: %v", e)
		}
		release()
		must(t, <-a.done)
		if e := a.g.Ending(); e != pleg.EndingCloses || e.String() != "the state file to be closed" {
			t.Errorf("at the end: %v", e)
		}
	})
}
