package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/unsent"
)

// outlet is where one stream's messages go.
type outlet struct {
	*unsent.Outlet

	mu       sync.Mutex
	position string
}

// send sends a message, with the position to go on from after it, "" for none.
// It waits as long as the client takes nothing.
func (o *outlet) send(m any, position string) error {
	err := o.SendMsg(m)
	if err == nil && position != "" {
		o.mu.Lock()
		o.position = position
		o.mu.Unlock()
	}
	return err
}

func (o *outlet) at() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.position
}

// through has produce send until it returns, which decides how the stream ends,
// unless the client takes nothing for too long or the server stops. Who waits in
// SendMsg can't be called off but by the handler's return, so that happens in
// a goroutine of its own, which Serve awaits.
func (s *Server) through(stream grpc.ServerStream, produce func(ctx context.Context, o *outlet) error) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	o := &outlet{Outlet: unsent.NewOutlet(stream, s.cfg.Stall)}
	done := make(chan error, 1)
	s.senders.Go(func() { done <- produce(ctx, o) })
	select {
	case err := <-done:
		if errors.Is(err, pleg.ErrStopped) {
			return stopping(o.at())
		}
		if errors.Is(err, pleg.ErrBehind) {
			return failed(codes.ResourceExhausted, plegdv1.Reason_REASON_SLOW, err, at(o.at()))
		}
		return statusOf(err)
	case <-o.Stalled():
		return s.cut(stream.Context(), o.at())
	case <-s.ctx.Done():
		return stopping(o.at())
	}
}

// cut ends the stream of a client that takes nothing. The one whose cut ends the
// connection doesn't hear why, and from where to go on.
func (s *Server) cut(ctx context.Context, position string) error {
	err := fmt.Errorf("nothing of what was sent was taken for %v; go on from the position", s.cfg.Stall)
	if position == "" {
		err = fmt.Errorf("nothing of what was sent was taken for %v", s.cfg.Stall)
	}
	if info := authOf(ctx); info != nil {
		s.cfg.Logger.Info("a client takes nothing and is cut", "pid", info.peer.PID, "uid", info.peer.UID, "position", position)
		info.wasCut()
	}
	return failed(codes.ResourceExhausted, plegdv1.Reason_REASON_SLOW, err, at(position))
}
