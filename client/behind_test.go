package client_test

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/client"
)

// cutting is an agent that cuts each watch after two live events, of which the
// first is written.
type cutting struct {
	plegdv1.UnimplementedPodLifecycleServer
	asked notes // where watches began
}

func (c *cutting) Watch(req *plegdv1.WatchRequest, stream grpc.ServerStreamingServer[plegdv1.WatchResponse]) error {
	from, position := 0, func(n int) string { return fmt.Sprint("9f010203040506ab/", n) }
	if at := req.GetPosition(); at != "" {
		if _, err := fmt.Sscanf(at, "9f010203040506ab/%d", &from); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
	}
	c.asked.add(fmt.Sprint(from))
	live := func(n int) *plegdv1.Event { return &plegdv1.Event{Type: fmt.Sprint("E", n), Live: true} }
	for _, m := range []*plegdv1.WatchResponse{
		{Message: &plegdv1.WatchResponse_Bookmark{Bookmark: &plegdv1.Bookmark{Position: position(from)}}},
		{Message: &plegdv1.WatchResponse_Events{Events: &plegdv1.Events{Events: []*plegdv1.Event{live(from + 1), live(from + 2)}, Position: position(from + 1)}}},
	} {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	st, err := status.New(codes.ResourceExhausted, "fell behind the live events").WithDetails(&errdetails.ErrorInfo{
		Domain: "plegd.v1", Reason: plegdv1.Reason_REASON_SLOW.String(), Metadata: map[string]string{"position": position(from + 1)},
	})
	if err != nil {
		return err
	}
	return st.Err()
}

// A live watch that was cut because it fell behind goes on from what is written, and
// nobody is told of it: the agent was there all the time.
func TestLiveWatchIsCut(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv, agent := grpc.NewServer(), &cutting{}
	plegdv1.RegisterPodLifecycleServer(srv, agent)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	defer func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	c := dial(t, socket, client.Options{
		Disconnected: func(err error) { t.Errorf("disconnected: %v", err) }, Reconnected: func() { t.Error("reconnected") },
	})
	var got, at []string
	for u, err := range c.Watch(within(t), client.WatchOptions{From: client.From{Position: "9f010203040506ab/0"}, Live: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if u.Event != nil {
			got, at = append(got, u.Event.Type), append(at, u.Position)
		}
		if len(got) == 6 {
			break
		}
	}
	if want := []string{"E1", "E2", "E2", "E3", "E3", "E4"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if want := []string{"0", "1", "1", "2", "2", "3"}; !slices.EqualFunc(at, want, func(at, n string) bool { return at == "9f010203040506ab/"+n }) {
		t.Errorf("positions %v", at)
	}
	if got := agent.asked.line(); got != "0 1 2" {
		t.Errorf("watches began after %s", got)
	}
}
