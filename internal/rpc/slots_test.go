package rpc_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/rpctest"
)

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

// A call that is refused leaves nothing behind, whatever its deadline is: else it would
// be in memory until then.
func TestRefusedCallsLeaveNothing(t *testing.T) {
	n := rpctest.New(t)
	n.RPC.Stall = time.Hour
	n.Config.RelistPeriod, n.Config.RelistPeriodMax = time.Hour, time.Hour
	n.Start()
	const most, each = 1024, 128 // of all, and of a connection
	for range most/each + 1 {    // more than enough: a call that asks may come before the last of them
		unasked(t.Context(), t, n.Socket, each)
	}
	c := api(t, n.Socket)
	refused := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := c.Status(ctx, &plegdv1.StatusRequest{})
		return status.Code(err) == codes.ResourceExhausted
	}
	rpctest.WaitFor(t, "one call too many", refused)
	objects := func() int64 {
		runtime.GC()
		runtime.GC() // what pools hold, too
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapObjects)
	}
	before := objects()
	const calls = 5000 // a timer and its context are several objects
	for range calls {
		if !refused() {
			t.Fatal("a call is not refused")
		}
	}
	if more := objects() - before; more > calls {
		t.Errorf("%d refused calls leave %d objects", calls, more)
	}
	// Those whose request never comes are refused too, and keep no goroutine.
	goroutines := runtime.NumGoroutine()
	for range most / each {
		for _, call := range unasked(t.Context(), t, n.Socket, each) {
			if err := call.RecvMsg(&plegdv1.StatusResponse{}); status.Code(err) != codes.ResourceExhausted {
				t.Fatal(err)
			}
		}
	}
	if more := runtime.NumGoroutine() - goroutines; more > most/2 { // each connection has some
		t.Errorf("%d goroutines more", more)
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
