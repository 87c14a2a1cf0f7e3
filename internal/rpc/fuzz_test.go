package rpc

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/watch"
)

var errNothing = errors.New("nothing is there")

// nothing is a source from which nothing can be read.
type nothing struct{}

func (nothing) Subscribe(*pleg.Position) (*pleg.Subscription, error) { return nil, errNothing }

func (nothing) Pods() ([]pleg.Pod, pleg.Position) { return nil, pleg.Position{} }

func (nothing) Oldest() pleg.Position { return pleg.Position{} }

func (nothing) Health() pleg.Health { return pleg.Health{} }

func (nothing) Busy() bool { return false }

// Whatever a client asks for is understood, or is the client's mistake and said so
// in a message of bounded length.
func FuzzWatchRequest(f *testing.F) {
	for _, req := range []*plegdv1.WatchRequest{
		{},
		{From: &plegdv1.WatchRequest_Position{Position: "9f010203040506ab/7"}, Keepalive: durationpb.New(time.Second)},
		{From: &plegdv1.WatchRequest_Time{Time: timestamppb.New(time.Unix(1e9, 0))}, Consistency: plegdv1.Consistency_CONSISTENCY_LIVE},
		{From: &plegdv1.WatchRequest_Time{}, Keepalive: &durationpb.Duration{Seconds: 1 << 60}},
		{From: &plegdv1.WatchRequest_Snapshot{}, Filter: &plegdv1.Filter{LabelSelector: "app in (a,b),!c", Types: []string{"ContainerDied"}, Uids: []string{"u"}}},
		{Filter: &plegdv1.Filter{LabelSelector: "((", Sources: []string{""}}},
	} {
		b, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var req plegdv1.WatchRequest
		if proto.Unmarshal(b, &req) != nil {
			return // gRPC answers that, before the server sees it
		}
		r, err := watchRequest(&req)
		if err == nil {
			_, err = watch.New(nothing{}, r)
			if !errors.Is(err, errNothing) && !errors.Is(err, watch.ErrRequest) && !errors.Is(err, watch.ErrNotLive) && !errors.Is(err, watch.ErrUnknown) {
				t.Errorf("%v: %v", &req, err)
			}
			return
		}
		if code := status.Code(statusOf(err)); code != codes.InvalidArgument || len(err.Error()) > 8<<10 {
			t.Errorf("%v: %v %v", &req, code, err)
		}
	})
}
