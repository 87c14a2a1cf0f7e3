package main

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// serveAs has something answer in the place of an agent.
func serveAs(t *testing.T, agent plegdv1.PodLifecycleServer) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	plegdv1.RegisterPodLifecycleServer(srv, agent)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return socket
}

// Commands that end by themselves end after --timeout too where an agent hangs in
// the middle.
func TestClientOfAHangingAgent(t *testing.T) {
	t.Parallel()
	socket := serveAs(t, hanging{})
	for _, cmd := range []string{"relist", "top"} {
		c := start(t, cmd, "--socket", socket, "--timeout", "300ms")
		if code := c.code(patience); code != exitTimeout || !strings.Contains(c.stderr.String(), socket+" has not answered after 300ms") {
			t.Errorf("plegd %s: code %d, %s", cmd, code, c.stderr)
		}
	}
}

// slow is an agent with one pod, that takes its time once something has happened.
type slow struct {
	hanging
	happened chan struct{} // is closed
	takes    time.Duration
}

func (s slow) pod() *plegdv1.Pod {
	select {
	case <-s.happened:
		time.Sleep(s.takes)
		return &plegdv1.Pod{Key: "u", Uid: "u", Name: "web", Sandboxes: []*plegdv1.Sandbox{{Id: "s", State: "notready"}}}
	default:
		return &plegdv1.Pod{Key: "u", Uid: "u", Name: "web", Sandboxes: []*plegdv1.Sandbox{{Id: "s", State: "ready"}}}
	}
}

func (s slow) GetPod(context.Context, *plegdv1.GetPodRequest) (*plegdv1.GetPodResponse, error) {
	return &plegdv1.GetPodResponse{Pod: s.pod()}, nil
}

func (s slow) ListPods(_ *plegdv1.ListPodsRequest, stream grpc.ServerStreamingServer[plegdv1.ListPodsResponse]) error {
	return stream.Send(&plegdv1.ListPodsResponse{Pods: []*plegdv1.Pod{s.pod()}, Position: hangsAt})
}

func (s slow) Watch(req *plegdv1.WatchRequest, stream grpc.ServerStreamingServer[plegdv1.WatchResponse]) error {
	first := &plegdv1.Bookmark{Position: hangsAt}
	if req.GetSnapshot() != nil {
		first.SnapshotEnd = true
		if err := stream.Send(&plegdv1.WatchResponse{Message: &plegdv1.WatchResponse_Pods{Pods: &plegdv1.Pods{Pods: []*plegdv1.Pod{s.pod()}}}}); err != nil {
			return err
		}
	}
	if err := stream.Send(&plegdv1.WatchResponse{Message: &plegdv1.WatchResponse_Bookmark{Bookmark: first}}); err != nil {
		return err
	}
	<-s.happened
	ev := &plegdv1.Event{Position: "9f010203040506ab/2", Type: "SandboxNotReady", PodKey: "u", Pod: &plegdv1.EventPod{Uid: "u", Name: "web"}, SandboxId: "s"}
	if err := stream.Send(&plegdv1.WatchResponse{Message: &plegdv1.WatchResponse_Events{Events: &plegdv1.Events{Events: []*plegdv1.Event{ev}}}}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// What goes on for ever goes on too where an agent takes longer than --timeout for a
// later answer.
func TestPodsWatchOfASlowAgent(t *testing.T) {
	t.Parallel()
	agent := slow{happened: make(chan struct{}), takes: 3 * time.Second}
	socket := serveAs(t, agent)
	c := start(t, "pods", "--watch", "--socket", socket, "--timeout", "2s")
	rows := c.scan(t)
	rows.await(t, "- web ready 0/0 0")
	close(agent.happened)
	rows.await(t, "- web notready 0/0 0")
	c.terminate()
}
