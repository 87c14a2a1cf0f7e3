package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
)

// Status implements plegdv1.PodLifecycleServer.
func (s *Server) Status(context.Context, *plegdv1.StatusRequest) (*plegdv1.StatusResponse, error) {
	src, err := s.source()
	if err != nil {
		return nil, err
	}
	st := src.Status()
	return protoStatus(&st), nil
}

// RequestRelist implements plegdv1.PodLifecycleServer.
func (s *Server) RequestRelist(ctx context.Context, req *plegdv1.RequestRelistRequest) (*plegdv1.RequestRelistResponse, error) {
	src, err := s.source()
	if err != nil {
		return nil, err
	}
	if !req.Wait {
		s.relists.begin(s, src)
		return &plegdv1.RequestRelistResponse{Position: src.Position().String()}, nil
	}
	if err := s.waits.enter(); err != nil {
		return nil, err
	}
	defer s.waits.free()
	ctx, cancel := s.untilStop(ctx)
	defer cancel()
	if s.fresh.wait(ctx) != nil {
		return nil, s.ended(ctx)
	}
	defer s.fresh.free()
	err = src.Relist(ctx)
	switch {
	case err == nil:
		return &plegdv1.RequestRelistResponse{Position: src.Position().String()}, nil
	case ctx.Err() != nil:
		return nil, s.ended(ctx)
	case errors.Is(err, pleg.ErrStopped):
		return nil, stopping("")
	}
	return nil, failed(codes.Unavailable, plegdv1.Reason_REASON_RUNTIME, fmt.Errorf("the list failed: %w", err), nil)
}

// relists are those that nobody waits for. One that is asked for while one goes on
// is made after it, since the one that goes on may have been sent before.
type relists struct {
	mu      sync.Mutex
	running bool
	again   bool
}

func (r *relists) begin(s *Server, src Source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		r.again = true
		return
	}
	r.running = true
	s.senders.Go(func() {
		for more := true; more; {
			// How it went is what the health says.
			if err := src.Relist(s.ctx); err != nil {
				s.cfg.Logger.Debug("a relist that a client asked for failed", "error", err)
			}
			r.mu.Lock()
			more = r.again && s.ctx.Err() == nil
			r.again, r.running = false, more
			r.mu.Unlock()
		}
	})
}
