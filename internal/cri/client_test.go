package cri

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

func TestCallsAnswer(t *testing.T) {
	seen := &calls{}
	_, c, pod, container := simulated(t, simruntime.Config{}, func(cfg *Config) { cfg.Observer = seen })
	ctx := t.Context()

	if v, err := c.Version(ctx); err != nil || v != (RuntimeVersion{"containerd", "v2.4.2", "v1"}) {
		t.Errorf("version: %+v, %v", v, err)
	}
	if s, err := c.PodSandboxStatus(ctx, pod); err != nil || s.GetId() != pod {
		t.Errorf("sandbox status: %v, %v", s, err)
	}
	if s, err := c.ContainerStatus(ctx, container); err != nil || s.GetId() != container {
		t.Errorf("container status: %v, %v", s, err)
	}
	if _, err := c.ContainerStatus(ctx, "nobody"); !NotFound(err) || TimedOut(err) || Unreachable(err) {
		t.Errorf("status of nobody: %v", err)
	}
	if l, err := c.ListPodSandbox(ctx, nil); err != nil || len(l) != 1 || l[0].GetId() != pod {
		t.Errorf("sandboxes: %v, %v", l, err)
	}
	if l, err := c.ListContainers(ctx, &runtimeapi.ContainerFilter{PodSandboxId: pod}); err != nil || len(l) != 1 {
		t.Errorf("containers: %v, %v", l, err)
	}
	if l, err := c.ListContainers(ctx, &runtimeapi.ContainerFilter{PodSandboxId: "other"}); err != nil || len(l) != 0 {
		t.Errorf("containers of another: %v, %v", l, err)
	}
	for method, want := range map[string]int{"Version": 1, "PodSandboxStatus": 1, "ContainerStatus": 1, "StreamPodSandboxes": 1, "StreamContainers": 2} {
		if got := seen.count(method, codes.OK); got != want {
			t.Errorf("%s: observed %d, want %d", method, got, want)
		}
	}
	if got := seen.count("ContainerStatus", codes.NotFound); got != 1 {
		t.Errorf("NotFound: observed %d", got)
	}
	if n := seen.open(); n != 0 {
		t.Errorf("%d calls in flight", n)
	}
}

// Only the code says that something is gone.
func TestNotFoundIsACode(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{status.Error(codes.NotFound, ""), true},
		{errors.Join(errors.New("x"), status.Error(codes.NotFound, "")), true},
		{status.Error(codes.Unknown, "container with ID X not found: not found"), false}, // some runtimes say it in words only
		{status.Error(codes.Internal, "NotFound"), false},
		{errors.New("not found"), false},
	} {
		if got := NotFound(tc.err); got != tc.want {
			t.Errorf("%v: %v", tc.err, got)
		}
	}
}

// An answer without a status, or about something else, says nothing.
func TestWrongAnswersAreErrors(t *testing.T) {
	rt, c, pod, container := simulated(t, simruntime.Config{})
	for what, edit := range map[string]func(m proto.Message){
		"none": func(m proto.Message) { proto.Reset(m) },
		"other": func(m proto.Message) {
			switch m := m.(type) {
			case *runtimeapi.PodSandboxStatusResponse:
				m.Status.Id += "1"
			case *runtimeapi.ContainerStatusResponse:
				m.Status.Id += "1"
			}
		},
	} {
		h, err := rt.AddRule(simruntime.Rule{Edit: edit})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := c.PodSandboxStatus(t.Context(), pod); !errors.Is(err, ErrAnswer) || NotFound(err) {
			t.Errorf("%s: sandbox: %v, %v", what, s, err)
		}
		if s, err := c.ContainerStatus(t.Context(), container); !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: container: %v, %v", what, s, err)
		}
		h.Remove()
	}
	// containerd takes the beginning of an id for the id.
	if s, err := c.ContainerStatus(t.Context(), container[:12]); err == nil {
		t.Errorf("short id: %v", s)
	}
}

func TestCallsEndAtTheirDeadline(t *testing.T) {
	const timeout = 150 * time.Millisecond
	short := func(cfg *Config) { cfg.RPCTimeout = timeout }
	every := func(t *testing.T, c *Client, want ...codes.Code) {
		for what, call := range map[string]func() error{
			"version":    func() error { _, err := c.Version(t.Context()); return err },
			"sandboxes":  func() error { _, err := c.ListPodSandbox(t.Context(), nil); return err },
			"containers": func() error { _, err := c.ListContainers(t.Context(), nil); return err },
			"sandbox":    func() error { _, err := c.PodSandboxStatus(t.Context(), "x"); return err },
			"container":  func() error { _, err := c.ContainerStatus(t.Context(), "x"); return err },
		} {
			start := time.Now()
			err := call()
			if took := time.Since(start); took > timeout+time.Second {
				t.Errorf("%s: took %v", what, took)
			}
			ok := false
			for _, code := range want {
				ok = ok || is(err, code)
			}
			if !ok {
				t.Errorf("%s: %v; want %v", what, err, want)
			}
		}
	}
	t.Run("a runtime that ignores cancellation", func(t *testing.T) {
		rt, path := simtest.Start(t, simruntime.Config{})
		simtest.Rule(t, rt, simruntime.Rule{Hang: true, IgnoreCancel: true})
		every(t, client(t, path, short), codes.DeadlineExceeded)
	})
	t.Run("a stream that stops in the middle", func(t *testing.T) {
		rt, c, _, _ := simulated(t, simruntime.Config{}, short)
		simtest.Rule(t, rt, simruntime.Rule{Hang: true, IgnoreCancel: true, After: true})
		every(t, c, codes.DeadlineExceeded, codes.NotFound)
	})
	t.Run("a frozen process", func(t *testing.T) { // the kernel accepts, nobody greets
		path := filepath.Join(t.TempDir(), "s")
		lis, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer lis.Close()
		every(t, client(t, path, short), codes.DeadlineExceeded)
	})
	t.Run("nobody there", func(t *testing.T) {
		c := client(t, filepath.Join(t.TempDir(), "s"), short)
		every(t, c, codes.Unavailable, codes.DeadlineExceeded)
		_, err := c.Version(t.Context())
		if !Unreachable(err) || !strings.Contains(err.Error(), c.Path()) {
			t.Errorf("error %v should name the socket", err)
		}
	})
	t.Run("the caller's own deadline", func(t *testing.T) {
		rt, path := simtest.Start(t, simruntime.Config{})
		simtest.Rule(t, rt, simruntime.Rule{Hang: true, IgnoreCancel: true})
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		if _, err := client(t, path).Version(ctx); !TimedOut(err) {
			t.Error(err)
		}
	})
}

// A list larger than gRPC's own limit of 4 MiB comes whole, whichever call brings it.
func TestLargeLists(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		profile := simruntime.Containerd24
		profile.NoStreamingLists = !streaming
		rt, path := simtest.Start(t, simruntime.Config{Profile: profile})
		pad := map[string]string{"pad": strings.Repeat("x", 2400)}
		pod, err := rt.RunPodSandbox(simruntime.PodSpec{Name: "cron", UID: "u"})
		if err != nil {
			t.Fatal(err)
		}
		for range 4000 {
			rt.PutContainer(pod, &runtimeapi.ContainerStatus{Id: rndName(), Annotations: pad})
		}
		c := client(t, path, func(cfg *Config) { cfg.RPCTimeout = 30 * time.Second })
		l, err := c.ListContainers(t.Context(), nil)
		if err != nil || len(l) != 4000 {
			t.Fatalf("streaming %v: %d containers, %v", streaming, len(l), err)
		}
		size := 0
		for _, i := range l {
			size += proto.Size(i)
		}
		if size < 9<<20 {
			t.Errorf("only %d bytes: the test is too small", size)
		}
	}
	rt, c, _, _ := simulated(t, simruntime.Config{})
	simtest.Rule(t, rt, simruntime.Rule{Method: "StreamContainers", Code: codes.Unimplemented})
	simtest.Rule(t, rt, simruntime.Rule{Method: "ListContainers", Code: codes.ResourceExhausted})
	if l, err := c.ListContainers(t.Context(), nil); !TooLarge(err) || l != nil {
		t.Errorf("%v, %v", l, err)
	}
}

var names atomic.Int64

func rndName() string { return "c" + time.Duration(names.Add(1)).String() }

// A runtime upgraded under the agent is noticed: the connection was lost.
func TestStreamingListsAreProbedAgain(t *testing.T) {
	profile := simruntime.Containerd24
	seen, connected := &calls{}, atomic.Int64{}
	rt, c, _, _ := simulated(t, simruntime.Config{Profile: profile}, func(cfg *Config) {
		cfg.Observer = seen
		cfg.Connected = func() { connected.Add(1) }
	})
	old, err := rt.AddRule(simruntime.Rule{Where: func(op simruntime.Op) bool { return strings.HasPrefix(op.Method, "Stream") }, Code: codes.Unimplemented})
	if err != nil {
		t.Fatal(err)
	}
	lists := func() {
		t.Helper()
		if l, err := c.ListPodSandbox(t.Context(), nil); err != nil || len(l) != 1 {
			t.Fatalf("%v, %v", l, err)
		}
		if l, err := c.ListContainers(t.Context(), nil); err != nil || len(l) != 1 {
			t.Fatalf("%v, %v", l, err)
		}
	}
	for range 3 {
		lists()
	}
	if n := seen.count("StreamContainers", codes.Unimplemented); n != 1 {
		t.Errorf("asked %d times for a streaming list that isn't there", n)
	}
	if n := seen.count("ListContainers", codes.OK); n != 3 {
		t.Errorf("%d unary lists", n)
	}

	old.Remove()
	rt.Restart()
	eventually(t, "reconnection", func() bool { _, err := c.Version(t.Context()); return err == nil })
	lists()
	if n := seen.count("StreamContainers", codes.OK); n != 1 {
		t.Errorf("%d streaming lists after the upgrade", n)
	}
	if n := connected.Load(); n != 2 {
		t.Errorf("told of %d connections, want 2", n)
	}
}

// Part of a list proves nothing.
func TestPartialListsAreThrownAway(t *testing.T) {
	rt, c, pod, _ := simulated(t, simruntime.Config{StreamBatch: 1})
	for range 5 {
		if _, err := rt.CreateContainer(pod, simruntime.ContainerSpec{Name: rndName()}); err != nil {
			t.Fatal(err)
		}
	}
	for _, code := range []codes.Code{codes.Unavailable, codes.Internal, codes.Canceled, codes.ResourceExhausted} {
		h, err := rt.AddRule(simruntime.Rule{Method: "StreamContainers", After: true, Code: code})
		if err != nil {
			t.Fatal(err)
		}
		if l, err := c.ListContainers(t.Context(), nil); !is(err, code) || l != nil {
			t.Errorf("%v: %d items, %v", code, len(l), err)
		}
		h.Remove()
	}
	if l, err := c.ListContainers(t.Context(), nil); err != nil || len(l) != 6 {
		t.Errorf("%d items, %v", len(l), err)
	}
}

func TestEventStreamEnds(t *testing.T) {
	seen := &calls{}
	rt, c, _, container := simulated(t, simruntime.Config{ReplayWindow: -1}, func(cfg *Config) { cfg.Observer = seen })
	for _, tc := range []struct {
		code codes.Code
		met  func(error) bool
	}{
		{codes.OK, func(err error) bool { return errors.Is(err, io.EOF) }},
		{codes.Unavailable, Unreachable},
		{codes.Internal, func(err error) bool { return is(err, codes.Internal) }},
	} {
		s, err := c.Events(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := rt.WaitSubscribers(short(t, 5*time.Second), 1); err != nil {
			t.Fatal(err)
		}
		rt.InjectEvent(&runtimeapi.ContainerEventResponse{ContainerId: container, CreatedAt: 7})
		if e, err := s.Recv(); err != nil || e.GetContainerId() != container || e.GetCreatedAt() != 7 {
			t.Fatalf("%v, %v", e, err)
		}
		rt.EndStreams(tc.code)
		if e, err := s.Recv(); !tc.met(err) || errors.Is(err, ErrMalformed) {
			t.Errorf("%v: %v, %v", tc.code, e, err)
		}
		if err := rt.WaitSubscribers(short(t, 5*time.Second), 0); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, err := c.Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := s.Recv(); !is(err, codes.Canceled) {
		t.Error(err)
	}
	if n := seen.open(); n != 0 {
		t.Errorf("%d calls in flight", n)
	}
	simtest.Rule(t, rt, simruntime.Rule{Method: "GetContainerEvents", Code: codes.Unimplemented})
	if s, err = c.Events(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !Unimplemented(err) {
		t.Error(err)
	}
}
