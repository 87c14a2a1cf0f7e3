package rpc_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/rpctest"
)

// Lists and snapshots that are not read hold up nobody, and what they hold is
// bounded.
func TestUnreadPods(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	manyPods(t, n, 80)
	ctx, cancel := context.WithTimeout(t.Context(), 3*rpctest.Timeout)
	defer cancel()
	// unread begins to read, and stops.
	unread := func(snapshot bool) error {
		c := api(t, n.Socket)
		if snapshot {
			stream, err := c.Watch(ctx, &plegdv1.WatchRequest{From: &plegdv1.WatchRequest_Snapshot{}})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}
		stream, err := c.ListPods(ctx, &plegdv1.ListPodsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	// whole reads a list to its end.
	whole := func() error {
		soon, cancel := context.WithTimeout(t.Context(), rpctest.Timeout)
		defer cancel()
		stream, err := api(t, n.Socket).ListPods(soon, &plegdv1.ListPodsRequest{})
		for err == nil {
			_, err = stream.Recv()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	const atOnce = 8 // may be converted
	for i := range 2 * atOnce {
		if err := unread(i%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := whole(); err != nil {
		t.Errorf("who reads: %v", err)
	}
	var err error
	for i := 0; i < 100 && err == nil; i++ { // of some 700 KB each that is left
		err = unread(i%2 == 0)
	}
	checkError(t, err, codes.ResourceExhausted, plegdv1.Reason_REASON_BUSY, "32 MiB of answers")
	cancel()
	rpctest.WaitFor(t, "room", func() bool { return whole() == nil })
}
