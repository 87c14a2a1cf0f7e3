package rpc

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
)

// sink is a stream that takes everything.
type sink struct {
	grpc.ServerStream
	ctx context.Context
}

func (s sink) Context() context.Context { return s.ctx }
func (sink) SendMsg(any) error          { return nil }

// A live reader of which memory has not what comes next is told to go on from what it
// was sent last. To get one there takes more events than memory keeps, twice.
func TestBehind(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	for _, position := range []string{"", "9f010203040506ab/7"} {
		err := s.through(sink{ctx: t.Context()}, func(_ context.Context, o *outlet) error {
			if err := o.send(nil, position); err != nil {
				return err
			}
			return fmt.Errorf("watch: %w", pleg.ErrBehind)
		})
		s.senders.Wait()
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("%v", err)
		}
		details := status.Convert(err).Details()
		if len(details) != 1 {
			t.Fatalf("details %v", details)
		}
		info, _ := details[0].(*errdetails.ErrorInfo)
		if info.GetReason() != plegdv1.Reason_REASON_SLOW.String() || info.Metadata["position"] != position {
			t.Errorf("after %q: %v", position, info)
		}
	}
}
