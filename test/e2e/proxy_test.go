package e2e

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fakeRuntime answers the few calls that tell whether the proxy is transparent.
type fakeRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	ended chan error // why the event stream ended
}

func (f *fakeRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: strings.Repeat("x", 5<<20)}, nil
}

func (f *fakeRuntime) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return nil, status.Errorf(codes.NotFound, "no container %q", r.GetContainerId())
}

func (f *fakeRuntime) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	for _, id := range []string{"a", "b"} {
		if err := stream.Send(&runtimeapi.ContainerEventResponse{ContainerId: id}); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	f.ended <- stream.Context().Err()
	return nil
}

func startFake(t *testing.T) (*fakeRuntime, string) {
	t.Helper()
	socket := filepath.Join(workDir(t, "fake"), "cri.sock")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	fake := &fakeRuntime{ended: make(chan error, 1)}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, fake)
	go server.Serve(lis)
	t.Cleanup(server.Stop)
	return fake, socket
}

func dialProxy(t *testing.T, p *proxy) runtimeapi.RuntimeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+p.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

func TestProxyIsTransparent(t *testing.T) {
	fake, socket := startFake(t)
	p := startProxy(t, socket)
	client := dialProxy(t, p)

	for range 2 {
		v, err := client.Version(t.Context(), &runtimeapi.VersionRequest{})
		if err != nil || len(v.GetRuntimeName()) != 5<<20 {
			t.Errorf("Version: %d bytes, %v", len(v.GetRuntimeName()), err)
		}
	}
	mark := p.mark()
	_, err := client.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: "x"})
	if want := status.Error(codes.NotFound, `no container "x"`); status.Code(err) != codes.NotFound || err.Error() != want.Error() {
		t.Errorf("ContainerStatus: %v, want %v", err, want)
	}
	if _, err := client.Status(t.Context(), &runtimeapi.StatusRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("Status: %v, want Unimplemented", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a", "b"} {
		if e, err := stream.Recv(); err != nil || e.GetContainerId() != want {
			t.Errorf("event %v, %v; want %s", e, err, want)
		}
	}
	cancel()
	select {
	case <-fake.ended:
	case <-time.After(5 * time.Second):
		t.Error("the runtime's stream goes on after the client has left")
	}

	want := map[string]int{"ContainerStatus": 1, "Status": 1, "GetContainerEvents": 1}
	if diff := cmp.Diff(want, count(p.since(mark))); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	if n := count(p.since(0))["Version"]; n != 2 {
		t.Errorf("counted %d Version, want 2", n)
	}
	if n := asked(p.since(0), "x"); n != 1 {
		t.Errorf("counted %d status calls about x, want 1", n)
	}
}

func TestProxyCut(t *testing.T) {
	_, socket := startFake(t)
	p := startProxy(t, socket)
	client := dialProxy(t, p)
	stream, err := client.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}

	p.cut()
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("stream after the cut: %v, want Unavailable", err)
	}
	if _, err := client.Version(t.Context(), &runtimeapi.VersionRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("call after the cut: %v, want Unavailable", err)
	}
	p.mend(t)
	if _, err := client.Version(t.Context(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("call after mending: %v", err)
	}
}
