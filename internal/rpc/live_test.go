package rpc_test

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/rpctest"
)

// A live watch doesn't wait for the disk: its events are marked, have no position,
// and are those that come to others once they are written. Where it is to go on
// from is never past what is written.
func TestLive(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Pod("old")
	a := n.Start()
	a.Settle()
	before := a.Generator.Position().String()
	c := api(t, n.Socket)
	watch := func(consistency plegdv1.Consistency) grpc.ServerStreamingClient[plegdv1.WatchResponse] {
		stream, err := c.Watch(t.Context(), &plegdv1.WatchRequest{Consistency: consistency, Keepalive: durationpb.New(time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := stream.Recv(); err != nil || m.GetBookmark().GetPosition() != before {
			t.Fatalf("%v, %v", m, err)
		}
		return stream
	}
	live, durable := watch(plegdv1.Consistency_CONSISTENCY_LIVE), watch(plegdv1.Consistency_CONSISTENCY_DURABLE)
	release := a.Hold()
	defer release()
	n.Pod("web")
	next := func(stream grpc.ServerStreamingClient[plegdv1.WatchResponse], wanted int) (events []*plegdv1.Event, resume string) {
		t.Helper()
		for len(events) < wanted {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, m.GetEvents().GetEvents()...)
			resume = m.GetEvents().GetPosition()
		}
		return events, resume
	}
	told, resume := next(live, 1) // what comes later is decided on after the commit that hangs
	if resume != before {
		t.Errorf("to go on from %s, though nothing is written after %s", resume, before)
	}
	if m, err := durable.Recv(); err != nil || m.GetBookmark().GetPosition() != before {
		t.Errorf("the durable watch has %v, %v", m, err)
	}
	release()
	more, _ := next(live, 4-len(told))
	told = append(told, more...)
	written, _ := next(durable, 4)
	for i, ev := range told {
		same := written[i]
		if !ev.Live || ev.Position != "" || same.Live || same.Position == "" || ev.Type != same.Type || ev.SandboxId != same.SandboxId || ev.Container.GetId() != same.Container.GetId() {
			t.Errorf("live %v\nwritten %v", ev, same)
		}
	}
	rpctest.WaitFor(t, "a bookmark after what is written", func() bool {
		m, err := live.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return m.GetBookmark().GetPosition() == written[len(written)-1].Position
	})
}
