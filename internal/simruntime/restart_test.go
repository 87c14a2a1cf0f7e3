package simruntime_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	sim "github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/internal/unixsock"
)

// restartCase looks at one restart with exits while the runtime is down,
// whatever it is served on.
func restartCase(t *testing.T, rt *sim.Runtime, conn *grpc.ClientConn, atRest func(listening bool)) {
	t.Helper()
	c := runtimeapi.NewRuntimeServiceClient(conn)
	_, app := pod(t, rt, "u1")
	r := subscribe(t, conn)
	waitSubscribers(t, rt, 1)
	for range 4 {
		r.next()
	}
	// A call that hangs for ever doesn't survive its server.
	simtest.Rule(t, rt, sim.Rule{Method: "Status", Hang: true, IgnoreCancel: true, Times: 1})
	hung := make(chan error, 1)
	go func() {
		_, err := c.Status(context.Background(), &runtimeapi.StatusRequest{})
		hung <- err
	}()
	check(t, rt.WaitCalls(t.Context(), "Status", func(s sim.CallStats) bool { return s.InFlight == 1 }))

	rt.Down()
	rt.Down()
	wantCode(t, r.end(), codes.Unavailable)
	wantCode(t, <-hung, codes.Unavailable)
	atRest(false)
	_, err := c.Version(t.Context(), &runtimeapi.VersionRequest{})
	wantCode(t, err, codes.Unavailable)
	if _, err := rt.RunPodSandbox(sim.PodSpec{UID: "u2"}); !errors.Is(err, sim.ErrDown) {
		t.Errorf("a runtime that is down ran a pod: %v", err)
	}
	check(t, rt.ExitContainer(app, 3, ""))
	inject(rt, "nobody sends this")

	rt.Up()
	rt.Up()
	atRest(true)
	version(t, conn)
	st, err := c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: app})
	check(t, err)
	if st.Status.ExitCode != 3 || st.Status.State != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("after the restart: %v", st.Status)
	}
	r = subscribe(t, conn)
	waitSubscribers(t, rt, 1)
	check(t, rt.RemoveContainer(app))
	if ev := r.next(); ev.ContainerEventType != deleted || ev.ContainerId != app {
		t.Errorf("first event after the restart: %v", ev)
	}
	last := rt.History()
	if exit := last[len(last)-2]; exit.Step != sim.Exited || !exit.Silent || exit.ExitCode != 3 {
		t.Errorf("history: %+v", exit)
	}
}

func TestRestartOnAUnixSocket(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{})
	restartCase(t, rt, simtest.Dial(t, path), func(listening bool) {
		_, err := os.Stat(path)
		if (err == nil) != listening {
			t.Errorf("listening %v, socket: %v", listening, err)
		}
	})
}

func TestRestartOnAnyListener(t *testing.T) {
	rt := simtest.New(t, sim.Config{})
	restartCase(t, rt, simtest.Bufconn(t, rt), func(bool) {})
}

func TestQueueIsLostInARestart(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{})
	simtest.Rule(t, rt, sim.Rule{Method: sim.MethodEvent, Skip: 4, Delay: time.Millisecond})
	_, app := pod(t, rt, "u1")
	check(t, rt.ExitContainer(app, 1, ""))
	rt.Restart()
	if st := rt.EventStats(); st.Waiting != 0 || st.Held != 0 {
		t.Errorf("stats: %+v", st)
	}
	time.Sleep(5 * time.Millisecond)
	r := subscribe(t, simtest.Dial(t, path))
	waitSubscribers(t, rt, 1)
	inject(rt, "new")
	if ev := r.next(); ev.ContainerId != "new" {
		t.Errorf("got %v", ev)
	}
}

func TestSeveralListenersAtOnce(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{})
	conns := []*grpc.ClientConn{simtest.Dial(t, path), simtest.Bufconn(t, rt)}
	for range 3 {
		for _, conn := range conns {
			version(t, conn)
		}
		rt.Restart()
	}
}

// version calls until the client has noticed that its old connection is gone.
func version(t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	for tries := 0; ; tries++ {
		_, err := runtimeapi.NewRuntimeServiceClient(conn).Version(t.Context(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
		if err == nil {
			return
		}
		if wantCode(t, err, codes.Unavailable); tries > 10 {
			t.Fatal(err)
		}
	}
}

func TestServeEndsWithItsContextWhileDown(t *testing.T) {
	rt := simtest.New(t, sim.Config{})
	lis, err := sim.Listen(filepath.Join(t.TempDir(), "s"))
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	rt.Down()
	go func() { done <- rt.Serve(ctx, lis) }()
	time.Sleep(10 * time.Millisecond)
	cancel()
	check(t, <-done)
	rt.Up()
}

func TestServeReportsAListenerThatFails(t *testing.T) {
	for name, listen := range map[string]func() (net.Listener, error){
		"unix": func() (net.Listener, error) { return sim.Listen(filepath.Join(t.TempDir(), "s")) },
		"tcp":  func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
	} {
		lis, err := listen()
		check(t, err)
		check(t, lis.Close())
		if err := simtest.New(t, sim.Config{}).Serve(t.Context(), lis); err == nil {
			t.Errorf("%s: served on a closed listener", name)
		}
	}
}

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cri.sock")
	first, err := sim.Listen(path)
	check(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := sim.Listen(path); !errors.Is(err, unixsock.ErrInUse) {
		t.Errorf("second listener: %v", err)
	}
	check(t, first.Close())

	// A socket file that its owner left behind.
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	check(t, err)
	stale.SetUnlinkOnClose(false)
	check(t, stale.Close())
	again, err := sim.Listen(path)
	check(t, err)
	check(t, again.Close())

	check(t, os.WriteFile(path, []byte("precious"), 0o600))
	if _, err := sim.Listen(path); err == nil {
		t.Error("replaced a file that isn't a socket")
	}
	if _, err := sim.Listen(filepath.Join(t.TempDir(), "no", "dir")); err == nil {
		t.Error("listened in a folder that doesn't exist")
	}
}
