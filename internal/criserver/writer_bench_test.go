package criserver

import (
	"context"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/writertest"
)

// BenchmarkWriter measures what 100 event streams cost the writer: see Compare.
func BenchmarkWriter(b *testing.B) {
	writertest.Compare(b, 100, func(tb testing.TB, w *writertest.Writer) string {
		socket := filepath.Join(tb.TempDir(), "s")
		server, err := New(Config{Socket: socket, Untrusted: ReadThrough, Source: func() (Source, string, error) { return w, "none", nil }})
		if err != nil {
			tb.Fatal(err)
		}
		writertest.Run(tb, server.Run)
		return socket
	})
}

// openEvents begins an event stream for a benchmark.
func openEvents(ctx context.Context, socket string) (next func() (int, error), err error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	stream, err := runtimeapi.NewRuntimeServiceClient(conn).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err == nil {
		_, err = stream.Header()
	}
	return func() (int, error) {
		err := stream.RecvMsg(new(runtimeapi.ContainerEventResponse))
		return 1, err
	}, err
}
