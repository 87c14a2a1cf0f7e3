package rpc_test

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
)

// openWatch begins a watch for a benchmark, which counts its events and makes
// nothing of them.
func openWatch(ctx context.Context, socket string) (next func() (int, error), err error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(counting{})))
	if err != nil {
		return nil, err
	}
	stream, err := conn.NewStream(ctx, &plegdv1.PodLifecycle_ServiceDesc.Streams[0], plegdv1.PodLifecycle_Watch_FullMethodName)
	if err == nil {
		err = errors.Join(stream.SendMsg(&plegdv1.WatchRequest{}), stream.CloseSend(), stream.RecvMsg(new(int64)))
	}
	return func() (int, error) {
		var events int64
		err := stream.RecvMsg(&events)
		return int(events), err
	}, err
}

// counting is a client's codec that counts events and doesn't make anything of
// them: what a client does with an event is not the agent's to pay.
type counting struct{}

func (counting) Name() string { return "proto" }

func (counting) Marshal(v any) (mem.BufferSlice, error) {
	b, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (counting) Unmarshal(data mem.BufferSlice, v any) error {
	const events, event = 2, 1 // fields of WatchResponse and of Events
	n, ok := v.(*int64)
	if !ok {
		return proto.Unmarshal(data.Materialize(), v.(proto.Message))
	}
	b := data.Materialize()
	for field, rest := next(b); field != 0; field, rest = next(rest) {
		if field != events {
			continue
		}
		_, _, k := protowire.ConsumeTag(b)
		body, _ := protowire.ConsumeBytes(b[k:])
		for f, r := next(body); f != 0; f, r = next(r) {
			if f == event {
				*n++
			}
		}
	}
	return nil
}

// next returns the number of the first field and what comes after it.
func next(b []byte) (protowire.Number, []byte) {
	field, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return 0, nil
	}
	return field, b[n+protowire.ConsumeFieldValue(field, kind, b[n:]):]
}
