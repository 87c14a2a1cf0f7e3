package rpc

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
)

// request is that of a call. It is given up if it doesn't come: else who makes
// calls and asks nothing keeps the others from asking.
type request struct{ late *time.Timer }

type requestKey struct{}

// hasCome says that the request of a call is there.
func hasCome(ctx context.Context) {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		r.late.Stop()
	}
}

// admit bounds the calls of all connections. They begin here, before their request
// has come.
func (s *Server) admit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if err := s.calls.enter(); err != nil {
		return nil, err
	}
	info := authOf(ctx)
	if info != nil {
		info.Begin()
	}
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(s.cfg.Stall, cancel)
	context.AfterFunc(ctx, func() {
		cancel()
		late.Stop()
		s.calls.free()
		if info != nil {
			info.End()
		}
	})
	return context.WithValue(ctx, requestKey{}, &request{late}), nil
}

// unary is called for each call of one answer.
func (s *Server) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	hasCome(ctx)
	resp, err := handler(ctx, req)
	if err != nil {
		return nil, err
	}
	return s.hold(ctx, resp)
}

// hold returns what is to be sent for a message, so that it counts as long as it
// is not taken. Events that are encoded already are not counted: gRPC takes at most
// 64 KiB and a message of a stream, and waits then, until the stream is cut.
func (s *Server) hold(ctx context.Context, m any) (any, error) {
	msg, ok := m.(proto.Message)
	info := authOf(ctx)
	if !ok || info == nil {
		return m, nil
	}
	send, ok := s.unsent.Hold(msg, info.Guest, func() {
		s.cfg.Logger.Info("a client takes no answer, and its connection is closed", "pid", info.peer.PID, "uid", info.peer.UID)
		_ = info.Close()
	})
	if !ok {
		return nil, errUnsent()
	}
	return send, nil
}

// stream is called for each call of many answers. Those of gRPC's own services
// have a bound of their own.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if !strings.HasPrefix(info.FullMethod, "/"+plegdv1.PodLifecycle_ServiceDesc.ServiceName+"/") {
		if err := s.aside.enter(); err != nil {
			return err
		}
		defer s.aside.free()
	}
	return handler(srv, bounded{ss, s})
}

// bounded is a stream that notices its request, and whose messages count.
type bounded struct {
	grpc.ServerStream
	s *Server
}

// RecvMsg implements [grpc.ServerStream].
func (b bounded) RecvMsg(m any) error {
	err := b.ServerStream.RecvMsg(m)
	hasCome(b.Context())
	return err
}

// SendMsg implements [grpc.ServerStream].
func (b bounded) SendMsg(m any) error {
	m, err := b.s.hold(b.Context(), m)
	if err != nil {
		return err
	}
	return b.ServerStream.SendMsg(m)
}
