package rpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/rpctest"
)

// Thousands of connections that want nothing cost no more than a few hundred, and
// keep nobody out; those that are in use are not closed for them.
func TestThousandsOfConnections(t *testing.T) {
	n := rpctest.New(t)
	n.Start()
	used := api(t, n.Socket)
	watch, err := used.Watch(t.Context(), &plegdv1.WatchRequest{})
	if err == nil {
		_, err = watch.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	const flood = 2000
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	for range flood {
		conn, err := net.Dial("unix", n.Socket)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		_, _ = conn.Write([]byte(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")) // refused ones are closed already
	}
	rpctest.WaitFor(t, "no more than 256 connections to be left", func() bool { return openOf(conns) <= 256 })
	if extra := runtime.NumGoroutine() - before; extra > 256*6+100 {
		t.Errorf("%d goroutines more", extra)
	}
	if _, err := api(t, n.Socket).Status(t.Context(), &plegdv1.StatusRequest{}); err != nil {
		t.Errorf("another client: %v", err)
	}
	n.Pod("web")
	if _, err := watch.Recv(); err != nil {
		t.Errorf("a watch from before: %v", err)
	}
}

// openOf counts the connections whose other end is not closed.
func openOf(conns []net.Conn) (open int) {
	for _, conn := range conns {
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		var err error
		for err == nil {
			_, err = conn.Read(make([]byte, 1024))
		}
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			open++
		}
	}
	return open
}

// Who has just come makes no room for the next one, although many connections are
// in use.
func TestNewcomersLetOneAnotherIn(t *testing.T) {
	n := rpctest.New(t)
	n.Start()
	for range 200 { // of 256
		stream, err := api(t, n.Socket).Watch(t.Context(), &plegdv1.WatchRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	rpctest.WaitFor(t, "both newcomers to be there", func() bool { // unless the machine has slept in between
		conn, err := net.Dial("unix", n.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = conn.Write([]byte(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
		_ = conn.SetReadDeadline(time.Now().Add(rpctest.Timeout))
		if _, err := conn.Read(make([]byte, 1)); err != nil { // it is in once it is spoken to
			return false
		}
		_, err = api(t, n.Socket).Status(t.Context(), &plegdv1.StatusRequest{})
		return err == nil && openOf([]net.Conn{conn}) == 1
	})
}

// Who finds every connection in use is told so. Who comes when one of them isn't
// any more takes its place, though it is still open, and the others go on.
func TestTooManyConnectionsInUse(t *testing.T) {
	n := rpctest.New(t)
	n.Start()
	const most = 256
	first, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last grpc.ServerStreamingClient[plegdv1.WatchResponse]
	for i := range most {
		ctx := t.Context()
		if i == 0 {
			ctx = first
		}
		stream, err := api(t, n.Socket).Watch(ctx, &plegdv1.WatchRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		last = stream
	}
	conn, err := net.Dial("unix", n.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(http2.ClientPreface))
	_ = conn.SetReadDeadline(time.Now().Add(rpctest.Timeout))
	said, err := io.ReadAll(conn)
	if err != nil && len(said) == 0 || !strings.Contains(string(said), "256 connections are open and in use") {
		t.Errorf("%q, %v", said, err)
	}
	cancel() // of the call; its connection stays
	rpctest.WaitFor(t, "a place", func() bool {
		_, err := api(t, n.Socket).Status(t.Context(), &plegdv1.StatusRequest{})
		return err == nil
	})
	n.Pod("web")
	if _, err := last.Recv(); err != nil {
		t.Errorf("a watch from before: %v", err)
	}
}
