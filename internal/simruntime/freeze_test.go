package simruntime_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	sim "github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// briefly calls with little patience.
func briefly(t *testing.T, c client) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.Version(ctx, &runtimeapi.VersionRequest{})
	return err
}

// A frozen runtime accepts and never answers, ends nothing, and goes on where
// it was.
func TestFreezeAndThaw(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{})
	conn := simtest.Dial(t, path)
	c := runtimeapi.NewRuntimeServiceClient(conn)
	_, app := pod(t, rt, "u1")
	r := subscribe(t, conn)
	waitSubscribers(t, rt, 1)
	for range 4 {
		r.next()
	}

	rt.Freeze()
	rt.Freeze()
	if !rt.Frozen() {
		t.Error("not frozen")
	}
	check(t, rt.ExitContainer(app, 4, ""))
	wantCode(t, briefly(t, c), codes.DeadlineExceeded)
	late := make(chan error, 2)
	patient := func(c client) {
		_, err := c.Status(context.Background(), &runtimeapi.StatusRequest{})
		late <- err
	}
	go patient(c)
	another := simtest.Dial(t, path)
	go patient(runtimeapi.NewRuntimeServiceClient(another))
	bare, err := net.Dial("unix", path)
	check(t, err)
	defer func() { _ = bare.Close() }()
	check(t, bare.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	if _, err := bare.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection: %v, want silence", err)
	}
	select {
	case ev, ok := <-r.events:
		t.Errorf("a frozen runtime sent %v, %v (%v)", ev, ok, r.err)
	case err := <-late:
		t.Errorf("a frozen runtime answered: %v", err)
	default:
	}
	if st := rt.CallStats(""); st.Started != 0 {
		t.Errorf("a frozen runtime took calls: %+v", st)
	}

	rt.Thaw()
	rt.Thaw()
	if ev := r.next(); ev.ContainerId != app || ev.ContainerEventType != stopped {
		t.Errorf("after the thaw came %v", ev)
	}
	for range 2 {
		check(t, <-late)
	}
	check(t, briefly(t, c))
}

// What is frozen can be killed, with all that connects to it, and starts as
// good as new.
func TestFrozenRuntimeCanEnd(t *testing.T) {
	for name, end := range map[string]func(*sim.Runtime){"down": (*sim.Runtime).Down, "kill": (*sim.Runtime).Kill} {
		t.Run(name, func(t *testing.T) {
			rt, path := simtest.Start(t, sim.Config{})
			conn := simtest.Dial(t, path)
			r := subscribe(t, conn)
			waitSubscribers(t, rt, 1)
			early, err := net.Dial("unix", path) // never says a word
			check(t, err)
			defer func() { _ = early.Close() }()
			version(t, conn) // so early is accepted
			rt.Freeze()
			late, err := net.Dial("unix", path)
			check(t, err)
			defer func() { _ = late.Close() }()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				end(rt)
			}()
			select {
			case <-ended:
			case <-time.After(30 * time.Second): // gRPC would wait for early for 120 s
				t.Fatal("doesn't end")
			}
			wantCode(t, r.end(), codes.Unavailable)
			if rt.Freeze(); rt.Frozen() {
				t.Error("what is down was frozen")
			}
			rt.Up()
			version(t, conn)
		})
	}
}

// In virtual time nothing wakes up while it is frozen.
func TestFreezeForAnHour(t *testing.T) {
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, c client, sub func() *reader) {
		r := sub()
		rt.Freeze()
		inject(rt, "a", "b")
		start := time.Now()
		time.AfterFunc(time.Hour, rt.Thaw)
		_, err := c.Version(t.Context(), &runtimeapi.VersionRequest{})
		check(t, err)
		if got := r.read(); time.Since(start) != time.Hour || !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("after %v: %v", time.Since(start), got)
		}
		synctest.Wait()
	})
}

// The file is gone while the runtime is up: who is connected stays so.
func TestRemoveSocket(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{})
	conn := simtest.Dial(t, path)
	version(t, conn)
	check(t, rt.RemoveSocket())
	if _, err := net.Dial("unix", path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("new connection: %v", err)
	}
	check(t, briefly(t, runtimeapi.NewRuntimeServiceClient(conn)))
	if err := rt.RemoveSocket(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed twice: %v", err)
	}
	// The path may be another's by the time the runtime ends.
	check(t, os.WriteFile(path, nil, 0o600))
	rt.Down()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("removed what it didn't make: %v", err)
	}
	check(t, os.Remove(path))
	rt.Up()
	version(t, conn)
}

// A killed process leaves its socket file, and what connects is refused.
func TestKillLeavesTheSocket(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{})
	conn := simtest.Dial(t, path)
	version(t, conn)
	r := subscribe(t, conn)
	waitSubscribers(t, rt, 1)
	rt.Kill()
	wantCode(t, r.end(), codes.Unavailable)
	if _, err := net.Dial("unix", path); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connect: %v, want refused", err)
	}
	rt.Up()
	version(t, conn)
	rt.Down()
	if _, err := net.Dial("unix", path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("connect after Down: %v, want no such file", err)
	}
}
