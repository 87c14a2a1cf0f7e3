package rpc

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/unsent"
)

// kept is a stream that keeps what is sent.
type kept struct {
	grpc.ServerStream
	sent []any
}

func (k *kept) SendMsg(m any) error {
	k.sent = append(k.sent, m)
	return nil
}

// What is sent of a list has the room that was taken for it, so that nothing else
// can take that meanwhile.
func TestPartsAreSentWithTheirRoom(t *testing.T) {
	t.Parallel()
	room, ok := unsent.New(1<<20, time.Hour).TakeParts([]int{100, 100})
	if !ok {
		t.Fatal("no room")
	}
	parts := &podParts{pods: [][]*plegdv1.Pod{{{Key: "a"}}, {{Key: "b"}}}, room: room}
	stream := &kept{}
	err := parts.send(&outlet{Outlet: unsent.NewOutlet(stream, time.Hour)}, func(pods []*plegdv1.Pod) proto.Message {
		return &plegdv1.ListPodsResponse{Pods: pods}
	})
	if err != nil || len(stream.sent) != 2 {
		t.Fatalf("%d messages, %v", len(stream.sent), err)
	}
	for _, m := range stream.sent {
		if _, ok := m.(*unsent.Part); !ok {
			t.Errorf("%T is sent", m)
		}
	}
}
