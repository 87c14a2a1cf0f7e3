package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/rpc"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/simruntime"
)

// large makes a history that doesn't fit into what a stopped reader lets through,
// the window of its stream and what the server may have underway.
func large(t testing.TB, n *rpctest.Node, a *rpctest.Agent, pods int) {
	t.Helper()
	label := strings.Repeat("x", 4000)
	for i := range pods {
		_, err := n.Runtime.RunPodSandbox(simruntime.PodSpec{
			Namespace: "default", Name: fmt.Sprint("p", i), UID: fmt.Sprint("u", i), Labels: map[string]string{"a": label, "b": label},
		})
		n.Must(err)
	}
	a.Settle()
}

// A client that takes nothing for too long is cut, with a position from which it
// goes on with nothing lost or repeated; nobody else notices.
func TestStoppedReaderIsCut(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	log := &logtest.Buffer{}
	n.RPC.Stall, n.RPC.Logger = 300*time.Millisecond, log.Logger()
	a := n.Start()
	from := a.Generator.Position().String()
	large(t, n, a, 60)
	c := api(t, n.Socket)
	stopped, err := c.Watch(t.Context(), after(from))
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.Watch(t.Context(), after(from)) // on the same connection
	if err != nil {
		t.Fatal(err)
	}
	journal := of(a.Journal())
	var beside []*plegdv1.Event
	for positions(beside) != journal {
		m, err := other.Recv()
		if err != nil {
			t.Fatalf("the reader beside: %v", err)
		}
		beside = append(beside, m.GetEvents().GetEvents()...)
	}
	rpctest.WaitFor(t, "the cut", func() bool { return log.Count("is cut") == 1 })
	var seen []*plegdv1.Event
	for err == nil {
		var m *plegdv1.WatchResponse
		m, err = stopped.Recv()
		seen = append(seen, m.GetEvents().GetEvents()...)
	}
	at := checkError(t, err, codes.ResourceExhausted, plegdv1.Reason_REASON_SLOW, "300ms")["position"]
	if len(seen) == 0 || seen[len(seen)-1].Position != at {
		t.Fatalf("cut at %s after %d events", at, len(seen))
	}
	rest := once(t, c, after(at))
	if len(rest.events) == 0 || positions(append(seen, rest.events...)) != journal {
		t.Errorf("seen\n%s\nand after the cut\n%s\nof\n%s", positions(seen), positions(rest.events), journal)
	}
}

// What was sent and not taken stays in memory as long as its connection, so one
// on which that happens again and again ends.
func TestConnectionOfStoppedReadersEnds(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	log := &logtest.Buffer{}
	n.RPC.Stall, n.RPC.Logger = 100*time.Millisecond, log.Logger()
	a := n.Start()
	from := a.Generator.Position().String()
	large(t, n, a, 60)
	conn := dial(t, n.Socket)
	c := plegdv1.NewPodLifecycleClient(conn)
	var streams []grpc.ServerStreamingClient[plegdv1.WatchResponse]
	for range 4 {
		stream, err := c.Watch(t.Context(), after(from))
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	rpctest.WaitFor(t, "all of them to be cut", func() bool { return log.Count("is cut") == len(streams) }) // nobody reads
	broken := 0
	for _, stream := range streams {
		var err error
		for err == nil {
			_, err = stream.Recv()
		}
		if code := status.Code(err); code == codes.Unavailable {
			broken++
		} else if code != codes.ResourceExhausted {
			t.Error(err)
		}
	}
	if broken == 0 {
		t.Error("the connection is still there")
	}
	once(t, c, after(from)) // a new one is as good as ever
}

// The end of the server ends every watch, with its position, also those that are
// not read.
func TestStopEndsWatches(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	a := n.Start()
	from := a.Generator.Position().String()
	large(t, n, a, 60)
	c := api(t, n.Socket)
	stopped, err := c.Watch(t.Context(), after(from))
	if err != nil {
		t.Fatal(err)
	}
	open, err := api(t, n.Socket).Watch(t.Context(), &plegdv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := open.Recv()
	if err != nil {
		t.Fatal(err)
	}
	_, err = stopped.Recv()
	if err != nil {
		t.Fatal(err)
	}
	a.Stop()
	for err == nil {
		_, err = open.Recv()
	}
	says := checkError(t, err, codes.Unavailable, plegdv1.Reason_REASON_STOPPING, "stops")
	if says["position"] != first.GetBookmark().Position {
		t.Errorf("position %v, want %s", says, first.GetBookmark().Position)
	}
	for err = nil; err == nil; {
		_, err = stopped.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// The server alone ends watches too, whatever it serves does.
func TestEndOfTheServerEndsWatches(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	a := n.Start()
	socket, stop := serve(t, rpc.Config{Health: a.Generator.Health, Source: func() (rpc.Source, error) { return a.Generator, nil }})
	open, err := api(t, socket).Watch(t.Context(), &plegdv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := open.Recv()
	if err != nil {
		t.Fatal(err)
	}
	stop()
	for err == nil {
		_, err = open.Recv()
	}
	says := checkError(t, err, codes.Unavailable, plegdv1.Reason_REASON_STOPPING, "stops")
	if says["position"] != first.GetBookmark().Position {
		t.Errorf("position %v, want %s", says, first.GetBookmark().Position)
	}
}

// There may be so many watches, and one more is told so; when one ends there is
// room for another.
func TestTooManyWatches(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Start()
	const most, each = 512, 128 // of all, and of a connection
	var ends []context.CancelFunc
	for range most / each {
		c := api(t, n.Socket)
		for range each {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream, err := c.Watch(ctx, &plegdv1.WatchRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, cancel)
		}
	}
	c := api(t, n.Socket)
	_, err := read(t.Context(), c, &plegdv1.WatchRequest{Once: true})
	checkError(t, err, codes.ResourceExhausted, plegdv1.Reason_REASON_BUSY, "512")
	if _, err := c.Status(t.Context(), &plegdv1.StatusRequest{}); err != nil {
		t.Errorf("other calls: %v", err)
	}
	ends[0]()
	rpctest.WaitFor(t, "room for a watch", func() bool {
		_, err := read(t.Context(), c, &plegdv1.WatchRequest{Once: true})
		return err == nil
	})
}

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

// unasked begins so many calls whose request never comes.
func unasked(ctx context.Context, t *testing.T, socket string, n int) (calls []grpc.ClientStream) {
	t.Helper()
	conn := dial(t, socket)
	for range n {
		call, err := conn.NewStream(ctx, &grpc.StreamDesc{}, plegdv1.PodLifecycle_Status_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, call)
	}
	return calls
}

// All connections together may have so many calls; those that have ended don't
// count.
func TestTooManyCalls(t *testing.T) {
	n := rpctest.New(t)
	log := &logtest.Buffer{}
	n.RPC.Logger = log.Logger()
	n.Start()
	c := api(t, n.Socket)
	const most, each = 1024, 128 // of all, and of a connection
	for range most + each {
		if _, err := c.Status(t.Context(), &plegdv1.StatusRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range most/each + 1 { // more than enough: the last of the calls before may still count
		unasked(ctx, t, n.Socket, each)
	}
	var err error
	rpctest.WaitFor(t, "one call too many", func() bool {
		_, err = c.Status(t.Context(), &plegdv1.StatusRequest{})
		return err != nil
	})
	checkError(t, err, codes.ResourceExhausted, plegdv1.Reason_REASON_BUSY, "1024 calls")
	cancel()
	rpctest.WaitFor(t, "room for a call", func() bool {
		_, err := c.Status(t.Context(), &plegdv1.StatusRequest{})
		return err == nil
	})
	rpctest.WaitFor(t, "the log to say so", func() bool { return log.Count("there is room again") == 1 })
	if n := log.Count("others are refused"); n != 1 {
		t.Errorf("it says %d times that it is full:\n%s", n, log)
	}
}

// A call that doesn't say what it wants ends, so that it takes nobody's place.
func TestUnaskedCallEnds(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.RPC.Stall = time.Second
	n.Start()
	ctx, cancel := context.WithTimeout(t.Context(), rpctest.Timeout)
	defer cancel()
	stream, err := api(t, n.Socket).Watch(ctx, &plegdv1.WatchRequest{}) // lasts longer
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range unasked(ctx, t, n.Socket, 2) {
		if err := call.RecvMsg(&plegdv1.StatusResponse{}); ctx.Err() != nil || status.Code(err) != codes.Canceled {
			t.Errorf("%v, %v", err, ctx.Err())
		}
	}
	n.Pod("web")
	for range 2 { // a bookmark and an event
		if _, err := stream.Recv(); err != nil {
			t.Error(err)
		}
	}
}

// Calls that last as long as their clients like leave room for others.
func TestCallsThatLast(t *testing.T) {
	n := rpctest.New(t)
	n.Start()
	const aside, waits = 64, 192
	conn := dial(t, n.Socket)
	h, r := healthpb.NewHealthClient(conn), reflectionpb.NewServerReflectionClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), rpctest.Timeout)
	defer cancel()
	health := func() (grpc.ServerStreamingClient[healthpb.HealthCheckResponse], error) {
		stream, err := h.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return stream, err
	}
	for i := range aside {
		var err error
		if i%2 == 0 {
			_, err = health()
		} else {
			var stream grpc.BidiStreamingClient[reflectionpb.ServerReflectionRequest, reflectionpb.ServerReflectionResponse]
			if stream, err = r.ServerReflectionInfo(ctx); err == nil {
				err = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
			}
			if err == nil {
				_, err = stream.Recv()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := health()
	checkError(t, err, codes.ResourceExhausted, plegdv1.Reason_REASON_BUSY, "64 streams")

	c, more := api(t, n.Socket), api(t, n.Socket)
	later := &plegdv1.GetPodRequest{Key: "none", NewerThan: timestamppb.New(time.Now().Add(30 * time.Minute))}
	const over = 3
	ends := make(chan error, waits+over)
	for i := range waits + over {
		by := c
		if i%2 == 0 {
			by = more
		}
		go func() {
			_, err := by.GetPod(ctx, later)
			ends <- err
		}()
	}
	for range over {
		checkError(t, <-ends, codes.ResourceExhausted, plegdv1.Reason_REASON_BUSY, "192 calls that wait")
	}
	_, err = c.RequestRelist(ctx, &plegdv1.RequestRelistRequest{Wait: true})
	checkError(t, err, codes.ResourceExhausted, plegdv1.Reason_REASON_BUSY, "192 calls that wait")
	if _, err := c.Status(t.Context(), &plegdv1.StatusRequest{}); err != nil {
		t.Errorf("other calls: %v", err)
	}
	cancel()
	for range waits {
		if err := <-ends; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	}
	rpctest.WaitFor(t, "room", func() bool {
		ctx, cancel = context.WithTimeout(t.Context(), rpctest.Timeout)
		defer cancel()
		_, err := health()
		_, rerr := c.RequestRelist(ctx, &plegdv1.RequestRelistRequest{Wait: true})
		_, perr := c.GetPod(ctx, &plegdv1.GetPodRequest{Key: "none", NewerThan: timestamppb.New(time.Unix(1, 0))})
		return err == nil && rerr == nil && status.Code(perr) == codes.NotFound
	})
}
