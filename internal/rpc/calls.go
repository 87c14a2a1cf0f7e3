package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/crowd"
	"github.com/plegd/plegd/internal/unsent"
)

// call is what admit notes of a call.
type call struct {
	refused bool // there was no place for it
}

type callKey struct{}

// callOf returns what admit has noted.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// admit bounds the calls of all connections. They begin here, before their request
// has come. One that is refused ends in serve, as soon as it comes there: grpc-go
// doesn't stop the timer of the deadline of a call that is refused here.
func (s *Server) admit(ctx context.Context, _ *tap.Info) (context.Context, error) {
	c := &call{refused: !s.calls.tryEnter()}
	ctx = context.WithValue(ctx, callKey{}, c)
	if c.refused {
		return ctx, nil
	}
	info := authOf(ctx)
	if info != nil {
		info.Begin()
	}
	return unsent.Await(ctx, s.cfg.Stall, func() {
		s.calls.free()
		if info != nil {
			info.End()
		}
	}), nil
}

// registrar registers services whose calls all come to serve.
type registrar struct {
	*grpc.Server
	s *Server
}

// RegisterService implements [grpc.ServiceRegistrar]. To a client a call of one answer
// is the same as one of many answers that has one; but an interceptor of those would
// not be called before their request has come. The streams of gRPC's own services have
// a bound of their own.
func (r registrar) RegisterService(d *grpc.ServiceDesc, impl any) {
	all := *d
	all.Methods, all.Streams = nil, nil
	var streams *slots
	if d.ServiceName != plegdv1.PodLifecycle_ServiceDesc.ServiceName {
		streams = r.s.aside
	}
	for _, st := range d.Streams {
		st.Handler = r.s.serve(st.Handler, streams)
		all.Streams = append(all.Streams, st)
	}
	for _, m := range d.Methods {
		handler := func(srv any, ss grpc.ServerStream) error {
			answer, err := m.Handler(srv, ss.Context(), ss.RecvMsg, nil)
			if err != nil {
				return err
			}
			return ss.SendMsg(answer)
		}
		all.Streams = append(all.Streams, grpc.StreamDesc{StreamName: m.MethodName, Handler: r.s.serve(handler, nil)})
	}
	r.Server.RegisterService(&all, impl)
}

// serve returns a handler that refuses calls which admit has refused, and those for
// which there is no place, if they need one.
func (s *Server) serve(handler grpc.StreamHandler, places *slots) grpc.StreamHandler {
	return func(srv any, ss grpc.ServerStream) error {
		if c := callOf(ss.Context()); c != nil && c.refused {
			return s.calls.refusal()
		}
		if places != nil {
			if err := places.enter(); err != nil {
				return err
			}
			defer places.free()
		}
		return handler(srv, bounded{unsent.Asked{ServerStream: ss}, s})
	}
}

// bounded is a call that notices its request, and whose messages count.
type bounded struct {
	unsent.Asked
	s *Server
}

// SendMsg implements [grpc.ServerStream]. A message counts as long as it is not taken.
// Events that are encoded already are not counted: gRPC takes at most 64 KiB and a
// message of a stream, and waits then, until the stream is cut.
func (b bounded) SendMsg(m any) error {
	info := authOf(b.Context())
	var guest *crowd.Guest
	if info != nil {
		guest = info.Guest
	}
	send, ok := b.s.unsent.Hold(m, guest, func() {
		b.s.cfg.Logger.Info("a client takes no answer, and its connection is closed", "pid", info.peer.PID, "uid", info.peer.UID)
		_ = info.Close()
	})
	if !ok {
		return errUnsent()
	}
	return b.Asked.SendMsg(send)
}
