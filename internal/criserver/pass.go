package criserver

import (
	"context"
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// maxStreamed bounds the parts of one streamed answer together, in bytes.
const maxStreamed = 64 << 20

// keyOf tells requests apart. Deterministic encoding makes those that say the
// same the same.
func keyOf(method string, req proto.Message) (string, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return "", status.Errorf(codes.InvalidArgument, "%s: %v", method, err)
	}
	return method + "\x00" + string(b), nil
}

// pass passes a call through.
func pass[Resp any, Message interface {
	*Resp
	proto.Message
}](ctx context.Context, s *Server, method string, req proto.Message) (*Resp, error) {
	return passEdited[Resp, Message](ctx, s, method, req, func(*Resp) {})
}

// passEdited passes a call through, and has its answer edited before anybody sees
// it.
func passEdited[Resp any, Message interface {
	*Resp
	proto.Message
}](ctx context.Context, s *Server, method string, req proto.Message, edit func(*Resp)) (*Resp, error) {
	client, err := s.runtime()
	if err != nil {
		return nil, err
	}
	key, err := keyOf(method, req)
	if err != nil {
		return nil, err
	}
	return ask(ctx, s.through, served[method], key, func(ctx context.Context) (*Resp, int, error) {
		resp := new(Resp)
		err := client.Conn().Invoke(ctx, method, req, resp)
		edit(resp)
		return resp, proto.Size(Message(resp)), err
	})
}

// passStream passes a call through that is answered in parts.
func passStream[Resp any, Message interface {
	*Resp
	proto.Message
}](s *Server, method string, req proto.Message, out grpc.ServerStreamingServer[Resp]) error {
	client, err := s.runtime()
	if err != nil {
		return err
	}
	key, err := keyOf(method, req)
	if err != nil {
		return err
	}
	parts, err := ask(out.Context(), s.through, served[method], key, func(ctx context.Context) ([]*Resp, int, error) {
		return drain[Resp, Message](ctx, client.Conn(), method, req, maxStreamed)
	})
	if err != nil {
		return err
	}
	sizes := make([]int, len(parts))
	for i, p := range parts {
		sizes[i] = proto.Size(Message(p))
	}
	parts = slices.Clone(parts) // others may have the same answer
	return sendParts(s, out, parts, sizes, func(part *Resp) proto.Message { return Message(part) })
}

// drain reads all parts of an answer, which may have so many bytes together.
func drain[Resp any, Message interface {
	*Resp
	proto.Message
}](ctx context.Context, conn grpc.ClientConnInterface, method string, req proto.Message, limit int) (parts []*Resp, size int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that is too large
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return nil, 0, err
	}
	if err := stream.SendMsg(req); err != nil && !errors.Is(err, io.EOF) { // then RecvMsg says why
		return nil, 0, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, 0, err
	}
	for {
		part := new(Resp)
		switch err := stream.RecvMsg(part); {
		case errors.Is(err, io.EOF):
			return parts, size, nil
		case err != nil:
			return nil, 0, err
		}
		if size += proto.Size(Message(part)); size > limit {
			return nil, 0, status.Errorf(codes.ResourceExhausted, "plegd: the runtime's answer is larger than %d bytes", limit)
		}
		parts = append(parts, part)
	}
}
