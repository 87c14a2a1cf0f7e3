package evented

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/internal/sysclock"
)

// Tests over gRPC on a unix socket, in real time.

// watch runs a Watcher of a simulated runtime until the end of the test.
func watch(t *testing.T, path string, cfg Config) *rig {
	t.Helper()
	var w atomic.Pointer[rig]
	c, err := cri.Dial(cri.Config{Endpoint: path, Clock: sysclock.New(), Connected: func() {
		if w := w.Load(); w != nil {
			w.Reprobe()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	cfg.Open = func(ctx context.Context) (Stream, error) { return c.Events(ctx) }
	w.Store(start(t, cfg))
	return w.Load()
}

func (g *rig) waitFor(t *testing.T, what string, met func(Status) bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !met(g.Status()); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen: %+v, submitted %.200s", what, g.Status(), g.sink)
		}
		time.Sleep(time.Millisecond)
	}
}

func isUp(s Status) bool { return s.State == arbiter.StreamUp }

func TestEventsOfARuntime(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{})
	w := watch(t, path, Config{})
	w.waitFor(t, "stream", isUp)
	sb, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: "web", UID: "u1"})
	if err != nil {
		t.Fatal(err)
	}
	ct, err := rt.CreateContainer(sb, simruntime.ContainerSpec{Name: "app"})
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.StartContainer(ct); err != nil {
		t.Fatal(err)
	}
	if err := rt.ExitContainer(ct, 7, "Error"); err != nil {
		t.Fatal(err)
	}
	w.waitFor(t, "events", func(s Status) bool { return s.Events == 5 })
	var last *arbiter.EventSeen
	for _, in := range w.sink.inputs() {
		if e, ok := in.(*arbiter.EventSeen); ok {
			if last != nil && e.At.Tick <= last.At.Tick {
				t.Error("stamps out of order")
			}
			last = e
		}
	}
	if last.ID != ct || last.Type != arbiter.EventStopped || last.Sandbox.ID != sb || last.Containers[0].Exit.Code != 7 || last.Containers[0].Sandbox != sb {
		t.Errorf("%+v", last)
	}
}

// Fifty streams that end in every way leave nothing behind.
func TestStreamsComeAndGo(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{ReplayWindow: -1})
	w := watch(t, path, Config{Grace: time.Millisecond, BackoffBase: time.Millisecond, BackoffMax: 5 * time.Millisecond, ProbeInterval: 5 * time.Millisecond})
	w.waitFor(t, "stream", isUp)
	before := runtime.NumGoroutine()
	cycle := func(n int, end func()) {
		opened := w.Status().Opened
		end()
		w.waitFor(t, fmt.Sprint("stream after end ", n), func(s Status) bool { return isUp(s) && s.Opened > opened })
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range 50 {
		code := []codes.Code{codes.Unavailable, codes.OK, codes.Internal, codes.Canceled, codes.ResourceExhausted}[i%5]
		cycle(i, func() {
			if err := rt.WaitSubscribers(ctx, 1); err != nil {
				t.Fatal(err)
			}
			rt.InjectEvent(event("a"))
			if i%2 == 0 {
				rt.InjectEvent(event("b"))
			}
			rt.EndStreams(code)
		})
	}
	for i := range 5 {
		cycle(i, rt.Restart)
	}
	if err := rt.WaitSubscribers(ctx, 1); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before+2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
	if got := w.sink.String(); strings.Contains(got, "UU") || strings.Contains(got, "DE") || strings.Contains(got, "XE") || strings.Contains(got, "O") {
		t.Errorf("submitted %s", got)
	}
}

// Unsupported, then upgraded; a large event; and garbage.
func TestUpgradedRuntime(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{ReplayWindow: -1})
	old := simtest.Rule(t, rt, simruntime.Rule{Method: "GetContainerEvents", Code: codes.Unimplemented})
	w := watch(t, path, Config{})
	w.waitFor(t, "verdict", func(s Status) bool { return s.State == arbiter.StreamUnsupported })
	time.Sleep(100 * time.Millisecond)
	if n := w.Status().Tries; n != 1 {
		t.Errorf("%d tries", n)
	}
	old.Remove()
	rt.Restart()
	// In hybrid mode relists connect again; here something has to.
	c, err := cri.Dial(cri.Config{Endpoint: path, Clock: sysclock.New(), Connected: w.Reprobe})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := c.Version(t.Context()); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	w.waitFor(t, "stream", isUp)
	if got := w.sink.String(); got != "XU" && got != "XDU" {
		t.Errorf("submitted %s", got)
	}

	garbled := event("g")
	garbled.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 4, protowire.BytesType), "\x0a\xff"))
	large := event("large")
	large.PodSandboxStatus = &runtimeapi.PodSandboxStatus{Id: "sb", Annotations: map[string]string{"pad": strings.Repeat("x", 6<<20)}}
	for _, e := range []*runtimeapi.ContainerEventResponse{garbled, large, event("last")} {
		rt.InjectEvent(e)
	}
	w.waitFor(t, "events", func(s Status) bool { return s.Events == 3 })
	if s := w.Status(); s.Malformed != 1 || !isUp(s) {
		t.Errorf("%+v", s)
	}
}

// A flood, an arbiter that takes nothing, and a runtime that blocks on slow
// readers (containerd 2.x): it never has to.
func TestReadingNeverStops(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{StallProducers: true, SubscriberBuffer: 1})
	w := watch(t, path, Config{})
	w.waitFor(t, "stream", isUp)
	w.sink.setRoom(0)
	const n = 3000
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range n {
			rt.InjectEvent(event(fmt.Sprint(i)))
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("the runtime is stuck")
	}
	w.waitFor(t, "events", func(s Status) bool { return s.Events == n && s.Lost == n })
	time.Sleep(overflowGap + 100*time.Millisecond)
	if lost, times := w.sink.lost(); lost != n || times > 20 {
		t.Errorf("told of %d lost, %d times", lost, times)
	}
}

// Asked to stop, it stops within a second in any state.
func TestStopsInAnyState(t *testing.T) {
	for _, tc := range []struct {
		what string
		rule simruntime.Rule
		down bool
	}{
		{"events flow", simruntime.Rule{Method: "Version", Code: codes.Internal}, false},
		{"stream hangs", simruntime.Rule{Method: "GetContainerEvents", Hang: true, IgnoreCancel: true}, false},
		{"unsupported", simruntime.Rule{Method: "GetContainerEvents", Code: codes.Unimplemented}, false},
		{"fails", simruntime.Rule{Method: "GetContainerEvents", Code: codes.Internal}, false},
		{"EOF", simruntime.Rule{Method: "GetContainerEvents", EOF: true}, false},
		{"runtime is down", simruntime.Rule{Method: "Version", Code: codes.Internal}, true},
	} {
		t.Run(tc.what, func(t *testing.T) {
			rt, path := simtest.Start(t, simruntime.Config{})
			simtest.Rule(t, rt, tc.rule)
			if tc.down {
				rt.Down()
			}
			w := watch(t, path, Config{})
			ctx, cancel := context.WithCancel(t.Context())
			flood := make(chan struct{})
			go func() {
				defer close(flood)
				for ctx.Err() == nil && !tc.down {
					rt.InjectEvent(event("x"))
					time.Sleep(100 * time.Microsecond)
				}
			}()
			time.Sleep(50 * time.Millisecond)
			if err := w.stop(); err != nil {
				t.Error(err)
			}
			cancel()
			<-flood
		})
	}
}
