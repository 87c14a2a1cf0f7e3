package client_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/client"
)

// scripted is an agent whose streams each say a few things and end.
type scripted struct {
	plegdv1.UnimplementedPodLifecycleServer
	asked   chan *plegdv1.WatchRequest
	streams chan []*plegdv1.WatchResponse
}

func (s *scripted) Watch(req *plegdv1.WatchRequest, stream grpc.ServerStreamingServer[plegdv1.WatchResponse]) error {
	s.asked <- req
	for _, m := range <-s.streams {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return status.Error(codes.Unavailable, "it stops")
}

// A watch that began at a time begins there again until an event has come: a bookmark
// may be from before the time, and what follows it too. After an event it goes on from
// that.
func TestWatchFromATimeGoesOn(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	agent := &scripted{asked: make(chan *plegdv1.WatchRequest, 10), streams: make(chan []*plegdv1.WatchResponse, 10)}
	srv := grpc.NewServer()
	plegdv1.RegisterPodLifecycleServer(srv, agent)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(lis) }()
	defer func() {
		srv.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	bookmark := func(at string) *plegdv1.WatchResponse {
		return &plegdv1.WatchResponse{Message: &plegdv1.WatchResponse_Bookmark{Bookmark: &plegdv1.Bookmark{Position: at}}}
	}
	event := func(at string) *plegdv1.WatchResponse {
		return &plegdv1.WatchResponse{Message: &plegdv1.WatchResponse_Events{Events: &plegdv1.Events{Events: []*plegdv1.Event{{Position: at}}}}}
	}
	agent.streams <- []*plegdv1.WatchResponse{bookmark("e/1")}               // it looks for the time
	agent.streams <- []*plegdv1.WatchResponse{bookmark("e/2")}               // again
	agent.streams <- []*plegdv1.WatchResponse{bookmark("e/4"), event("e/5")} // it has found it
	agent.streams <- []*plegdv1.WatchResponse{bookmark("e/7")}
	agent.streams <- []*plegdv1.WatchResponse{bookmark("e/7"), event("e/9")}
	begin := time.Unix(1700000000, 0)
	var seen, at []string
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	for u, err := range dial(t, socket, client.Options{}).Watch(ctx, client.WatchOptions{From: client.From{Time: begin}}) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			break
		}
		at = append(at, u.Position)
		if u.Event != nil {
			seen = append(seen, u.Event.Position)
		}
		if len(seen) == 2 {
			cancel()
		}
	}
	if want := []string{"e/5", "e/9"}; !slices.Equal(seen, want) {
		t.Errorf("events %v, want %v", seen, want)
	}
	if want := []string{"e/1", "e/2", "e/4", "e/5", "e/7", "e/7", "e/9"}; !slices.Equal(at, want) {
		t.Errorf("positions %v, want %v", at, want)
	}
	for i, want := range []string{"", "", "", "e/5", "e/7"} {
		req := <-agent.asked
		if got := req.GetPosition(); got != want || (want == "") != req.GetTime().AsTime().Equal(begin) {
			t.Errorf("stream %d begins at %v", i, req)
		}
	}
}
