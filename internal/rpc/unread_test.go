package rpc_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/rpctest"
)

// What is answered and not taken is bounded, for all clients together; when their
// connections end there is room again.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	manyPods(t, n, 1)
	c := api(t, n.Socket)
	get := &plegdv1.GetPodRequest{Key: "aa", Full: true}
	var conns []net.Conn
	var err error
	rpctest.WaitFor(t, "one answer too many", func() bool {
		if len(conns) < 100 { // a fifth of them is enough, if none is refused as one call too many
			conns = append(conns, rpctest.Unread(t, n.Socket, plegdv1.PodLifecycle_GetPod_FullMethodName, get, 128))
		}
		_, err = c.GetPod(t.Context(), get)
		return err != nil && strings.Contains(err.Error(), "answers")
	})
	checkError(t, err, codes.ResourceExhausted, plegdv1.Reason_REASON_BUSY, "32 MiB of answers")
	if _, err := c.GetPod(t.Context(), &plegdv1.GetPodRequest{Key: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("a small answer: %v", err)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	rpctest.WaitFor(t, "room", func() bool {
		_, err := c.GetPod(t.Context(), get)
		return err == nil
	})
}

// A client that doesn't take an answer loses its connection; one that does loses
// nothing.
func TestUnreadAnswerIsCut(t *testing.T) {
	t.Parallel()
	for what, call := range map[string]struct {
		method string
		req    proto.Message
	}{
		"one answer": {plegdv1.PodLifecycle_GetPod_FullMethodName, &plegdv1.GetPodRequest{Key: "aa"}},
		"a list":     {plegdv1.PodLifecycle_ListPods_FullMethodName, &plegdv1.ListPodsRequest{}},
	} {
		t.Run(what, func(t *testing.T) {
			n := rpctest.New(t)
			log := &logtest.Buffer{}
			n.RPC.Stall, n.RPC.Logger = time.Second, log.Logger()
			manyPods(t, n, 1)
			c := api(t, n.Socket)
			stream, err := c.Watch(t.Context(), &plegdv1.WatchRequest{})
			if err == nil {
				_, err = c.GetPod(t.Context(), &plegdv1.GetPodRequest{Key: "aa"})
			}
			if err != nil {
				t.Fatal(err)
			}
			conn := rpctest.Unread(t, n.Socket, call.method, call.req, 1)
			_ = conn.SetReadDeadline(time.Now().Add(rpctest.Timeout))
			for err == nil {
				_, err = conn.Read(make([]byte, 1024))
			}
			if errors.Is(err, os.ErrDeadlineExceeded) || log.Count("takes no answer") != 1 {
				t.Errorf("%v\n%s", err, log)
			}
			n.Pod("web")
			for range 2 { // a bookmark and an event
				if _, err := stream.Recv(); err != nil {
					t.Errorf("who reads: %v", err)
				}
			}
		})
	}
}
