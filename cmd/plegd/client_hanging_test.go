package main

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
)

// hanging is an agent that answers calls, but says nothing more once a watch has
// begun.
type hanging struct {
	plegdv1.UnimplementedPodLifecycleServer
}

const hangsAt = "9f010203040506ab/1"

func (hanging) Status(context.Context, *plegdv1.StatusRequest) (*plegdv1.StatusResponse, error) {
	return &plegdv1.StatusResponse{Live: true, Ready: true, Journal: &plegdv1.Journal{Newest: hangsAt, Oldest: hangsAt}}, nil
}

func (hanging) RequestRelist(context.Context, *plegdv1.RequestRelistRequest) (*plegdv1.RequestRelistResponse, error) {
	return &plegdv1.RequestRelistResponse{Position: hangsAt}, nil
}

func (hanging) ListPods(_ *plegdv1.ListPodsRequest, stream grpc.ServerStreamingServer[plegdv1.ListPodsResponse]) error {
	return stream.Send(&plegdv1.ListPodsResponse{Position: hangsAt})
}

func (hanging) Watch(_ *plegdv1.WatchRequest, stream grpc.ServerStreamingServer[plegdv1.WatchResponse]) error {
	err := stream.Send(&plegdv1.WatchResponse{Message: &plegdv1.WatchResponse_Bookmark{Bookmark: &plegdv1.Bookmark{Position: hangsAt}}})
	if err == nil {
		<-stream.Context().Done()
	}
	return err
}

// Commands that end by themselves end after --timeout too where an agent hangs in
// the middle.
func TestClientOfAHangingAgent(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	plegdv1.RegisterPodLifecycleServer(srv, hanging{})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	for _, cmd := range []string{"relist", "top"} {
		c := start(t, cmd, "--socket", socket, "--timeout", "300ms")
		if code := c.code(patience); code != exitTimeout || !strings.Contains(c.stderr.String(), socket+" has not answered after 300ms") {
			t.Errorf("plegd %s: code %d, %s", cmd, code, c.stderr)
		}
	}
}
