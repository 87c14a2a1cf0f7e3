package rpc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/writertest"
)

func TestMain(m *testing.M) {
	if !writertest.Read(openWatch) {
		goleak.VerifyTestMain(m)
	}
}

// window of each stream, bytes. Without one grpc-go lets it grow, so that a client
// that reads nothing may be sent a megabyte before it counts as stopped.
const window = 64 << 10

// dial connects to an agent until the end of the test.
func dial(t testing.TB, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(window))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func api(t testing.TB, socket string) plegdv1.PodLifecycleClient {
	t.Helper()
	return plegdv1.NewPodLifecycleClient(dial(t, socket))
}

// churn makes a history of so many steps, of several pods.
func churn(t testing.TB, n *rpctest.Node, seed uint64, steps int) {
	t.Helper()
	w, err := simruntime.NewWorkload(n.Runtime, simruntime.WorkloadConfig{Seed: seed, Pods: 8})
	if err != nil {
		t.Fatal(err)
	}
	for range steps {
		if _, err := w.Step(); err != nil {
			t.Fatal(err)
		}
	}
}

// got is what a watch brought.
type got struct {
	pods      []*plegdv1.Pod
	snapshots int // how often the end of one came
	events    []*plegdv1.Event
	bookmarks []string
}

// last is the position to go on from.
func (g *got) last() string {
	if n := len(g.bookmarks); n > 0 {
		return g.bookmarks[n-1]
	}
	return ""
}

// once reads a watch that ends when it has caught up.
func once(t testing.TB, c plegdv1.PodLifecycleClient, req *plegdv1.WatchRequest) *got {
	t.Helper()
	req.Once = true
	g, err := read(t.Context(), c, req)
	if err != nil {
		t.Fatalf("%v: %v", req, err)
	}
	return g
}

// read reads a watch to its end.
func read(ctx context.Context, c plegdv1.PodLifecycleClient, req *plegdv1.WatchRequest) (*got, error) {
	ctx, cancel := context.WithTimeout(ctx, rpctest.Timeout)
	defer cancel()
	g := &got{}
	stream, err := c.Watch(ctx, req)
	if err != nil {
		return g, err
	}
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return g, nil
		case err != nil:
			return g, err
		}
		g.pods = append(g.pods, m.GetPods().GetPods()...)
		g.events = append(g.events, m.GetEvents().GetEvents()...)
		if b := m.GetBookmark(); b != nil {
			g.bookmarks = append(g.bookmarks, b.Position)
			if b.SnapshotEnd {
				g.snapshots++
			}
		}
	}
}

func after(position string) *plegdv1.WatchRequest {
	return &plegdv1.WatchRequest{From: &plegdv1.WatchRequest_Position{Position: position}}
}

// positions are those of events, in a line.
func positions(events []*plegdv1.Event) string {
	var list []string
	for _, ev := range events {
		list = append(list, ev.Position)
	}
	return strings.Join(list, " ")
}

// of are the positions of a part of the journal, in a line.
func of(journal []pleg.Event) string {
	var list []string
	for _, ev := range journal {
		list = append(list, ev.Position.String())
	}
	return strings.Join(list, " ")
}

// checkError compares a status with what is wanted of it, and returns what its
// reason says.
func checkError(t testing.TB, err error, code codes.Code, why plegdv1.Reason, words ...string) map[string]string {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != code {
		t.Errorf("status %v %q, want %v", st.Code(), st.Message(), code)
	}
	for _, word := range words {
		if !strings.Contains(st.Message(), word) {
			t.Errorf("message %q doesn't say %q", st.Message(), word)
		}
	}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			if info.Reason != why.String() || info.Domain != "plegd.v1" {
				t.Errorf("reason %s of %s, want %v", info.Reason, info.Domain, why)
			}
			return info.Metadata
		}
	}
	if why != plegdv1.Reason_REASON_UNSPECIFIED {
		t.Errorf("%q has no reason, want %v", st.Message(), why)
	}
	return nil
}
