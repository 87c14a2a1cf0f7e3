package rpc_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	n.RPC.Stall, n.RPC.Logger = 3*time.Second, log.Logger()
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
	at := checkError(t, err, codes.ResourceExhausted, plegdv1.Reason_REASON_SLOW, "3s")["position"]
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
	n.RPC.Stall, n.RPC.Logger = time.Second, log.Logger()
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
