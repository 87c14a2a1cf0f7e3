// Package simtest starts simulated runtimes in tests and ends them with the
// test. Everything it starts is awaited in a cleanup, so a test may check for
// leaked goroutines afterwards.
package simtest

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/plegd/plegd/internal/simruntime"
)

// maxMessage is the receive limit that CRI clients use.
const maxMessage = 16 << 20

// New makes a runtime that isn't served.
func New(t testing.TB, cfg simruntime.Config) *simruntime.Runtime {
	t.Helper()
	rt, err := simruntime.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// Start makes a runtime and serves it on a unix socket, whose path it returns.
func Start(t testing.TB, cfg simruntime.Config) (*simruntime.Runtime, string) {
	t.Helper()
	rt := New(t, cfg)
	path := filepath.Join(t.TempDir(), "cri.sock")
	lis, err := simruntime.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	Serve(t, rt, lis)
	return rt, path
}

// Serve serves a runtime on a listener until the end of the test.
func Serve(t testing.TB, rt *simruntime.Runtime, lis net.Listener) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rt.Serve(ctx, lis) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

// Dial connects to a unix socket until the end of the test.
func Dial(t testing.TB, path string) *grpc.ClientConn {
	t.Helper()
	return dial(t, "unix://"+path)
}

// Bufconn serves a runtime in memory and returns a connection to it. Both end
// with the test. It works inside testing/synctest.
func Bufconn(t testing.TB, rt *simruntime.Runtime) *grpc.ClientConn {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	Serve(t, rt, lis)
	return dial(t, "passthrough:///bufconn", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return lis.DialContext(ctx)
	}))
}

func dial(t testing.TB, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// gRPC waits a second before it connects again; a test that restarts the
		// runtime has better things to do.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond,
		}, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Rule adds a rule until the end of the test.
func Rule(t testing.TB, rt *simruntime.Runtime, rule simruntime.Rule) *simruntime.RuleHandle {
	t.Helper()
	h, err := rt.AddRule(rule)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Remove)
	return h
}
