package criserver

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// maxUnsent bounds the answers that wait for clients to take them, in bytes, of all
	// of them together: four of the largest that there are.
	maxUnsent = 64 << 20
	// stallLimit is how long a client may not take a part of a streamed list. A
	// connection on which an answer waits for twice as long ends.
	stallLimit = 30 * time.Second
)

var (
	errUnsent  = status.Errorf(codes.ResourceExhausted, "plegd: %d MiB of answers wait for clients to take them, more are not allowed; try again later", maxUnsent>>20)
	errStalled = status.Error(codes.ResourceExhausted, "plegd: this client takes nothing of the list")
)

// unary is called for each call of one answer.
func (s *Server) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if err != nil {
		return nil, err
	}
	return s.hold(ctx, resp)
}

// hold returns what is to be sent for a message, so that it counts as long as it
// is not taken.
func (s *Server) hold(ctx context.Context, m any) (any, error) {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return m, nil
	}
	info, _ := p.AuthInfo.(guestInfo)
	msg, ok := m.(proto.Message)
	if !ok || info.guest == nil {
		return m, nil
	}
	send, ok := s.unsent.Hold(msg, info.guest, func() {
		s.cfg.Logger.Info("a client of the CRI endpoint takes no answer, and its connection is closed", "socket", s.cfg.Socket)
		_ = info.guest.Close()
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
	if info.FullMethod == runtimeapi.RuntimeService_GetContainerEvents_FullMethodName {
		return handler(srv, ss)
	}
	out := &outlet{ServerStream: ss, s: s, stalled: time.NewTimer(time.Hour)}
	out.stalled.Stop()
	done := make(chan error, 1)
	s.tasks.Go(func() { done <- handler(srv, out) })
	select {
	case err := <-done:
		return err
	case <-out.stalled.C:
		s.cfg.Logger.Info("a client of the CRI endpoint takes nothing of a list and is cut", "socket", s.cfg.Socket, "method", info.FullMethod)
		return errStalled
	}
}

// outlet is where a streamed list goes.
type outlet struct {
	grpc.ServerStream
	s       *Server
	stalled *time.Timer // fires when a message was not taken for too long
}

// SendMsg implements [grpc.ServerStream].
func (o *outlet) SendMsg(m any) error {
	m, err := o.s.hold(o.Context(), m)
	if err != nil {
		return err
	}
	o.stalled.Reset(o.s.cfg.Stall)
	defer o.stalled.Stop()
	return o.ServerStream.SendMsg(m)
}

// sendParts sends the parts of a list, of these sizes in bytes, if there is room
// for all of them.
func sendParts[T any](s *Server, parts []T, sizes []int, send func(T) error) error {
	room, ok := s.unsent.TakeParts(sizes)
	if !ok {
		return errUnsent
	}
	return room.Send(func(i int) error {
		part := parts[i]
		clear(parts[i : i+1])
		return send(part)
	})
}
