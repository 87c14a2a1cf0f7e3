package criserver

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/unsent"
)

// maxUnsent bounds the answers that wait for clients to take them, in bytes, of all
// of them together: four of the largest that there are.
const maxUnsent = 64 << 20

var (
	errUnsent  = status.Errorf(codes.ResourceExhausted, "plegd: %d MiB of answers wait for clients to take them, more are not allowed; try again later", maxUnsent>>20)
	errStalled = status.Error(codes.ResourceExhausted, "plegd: this client takes nothing of the list")
)

// unary is called for each call of one answer, when its request has come.
func (s *Server) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	unsent.Came(ctx)
	resp, err := handler(ctx, req)
	if err != nil {
		return nil, err
	}
	return s.hold(ctx, resp)
}

// hold returns what is to be sent for a message, so that it counts as long as it
// is not taken.
func (s *Server) hold(ctx context.Context, m any) (any, error) {
	guest := guestOf(ctx)
	send, ok := s.unsent.Hold(m, guest, func() {
		s.cfg.Logger.Info("a client of the CRI endpoint takes no answer, and its connection is closed", "socket", s.cfg.Socket)
		_ = guest.Close()
	})
	if !ok {
		return nil, errUnsent
	}
	return send, nil
}

// stream is called for each call of many answers. A list that isn't taken is cut.
// Sending can't be called off but by the handler's return, so it happens in a
// goroutine of its own. Events see to themselves: gRPC takes at most 64 KiB of a
// stream and a message, and waits then.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ss = unsent.Asked{ServerStream: ss}
	if info.FullMethod == runtimeapi.RuntimeService_GetContainerEvents_FullMethodName {
		return handler(srv, ss)
	}
	out := unsent.NewOutlet(counted{ss, s}, s.cfg.Stall)
	done := make(chan error, 1)
	s.tasks.Go(func() { done <- handler(srv, out) })
	select {
	case err := <-done:
		return err
	case <-out.Stalled():
		s.cfg.Logger.Info("a client of the CRI endpoint takes nothing of a list and is cut", "socket", s.cfg.Socket, "method", info.FullMethod)
		return errStalled
	}
}

// counted is a stream whose messages count.
type counted struct {
	grpc.ServerStream
	s *Server
}

// SendMsg implements [grpc.ServerStream].
func (c counted) SendMsg(m any) error {
	m, err := c.s.hold(c.Context(), m)
	if err != nil {
		return err
	}
	return c.ServerStream.SendMsg(m)
}

// sendParts sends the parts of a list, of these sizes in bytes, as the messages that
// of makes of them, if there is room for all of them.
func sendParts[T any](s *Server, out grpc.ServerStream, parts []T, sizes []int, of func(T) proto.Message) error {
	room, ok := s.unsent.TakeParts(sizes)
	if !ok {
		return errUnsent
	}
	return room.Send(func(i int, part *unsent.Part) error {
		m := of(parts[i])
		clear(parts[i : i+1])
		return out.SendMsg(part.Of(m))
	})
}
