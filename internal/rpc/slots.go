package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"google.golang.org/grpc/codes"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
)

// slots are places of which there are so many.
type slots struct {
	places chan struct{}
	what   string // has a place, in the plural
	log    *slog.Logger
	full   atomic.Bool // some were refused, and there is no room to speak of since
}

func newSlots(most int, what string, log *slog.Logger) *slots {
	return &slots{places: make(chan struct{}, most), what: what, log: log}
}

// enter takes a place. If there is none the error is that of refusal.
func (s *slots) enter() error {
	if s.tryEnter() {
		return nil
	}
	return s.refusal()
}

// tryEnter takes a place, if there is one.
func (s *slots) tryEnter() bool {
	select {
	case s.places <- struct{}{}:
		return true
	default:
	}
	if !s.full.Swap(true) {
		s.log.Warn("as many are served over gRPC as may be, others are refused", "what", s.what, "most", cap(s.places))
	}
	return false
}

// refusal is the status for who finds no place, and is not to take that for a broken
// connection, and try again at once.
func (s *slots) refusal() error {
	return busy(fmt.Errorf("there are %d %s, which is all that may be; try again later", cap(s.places), s.what))
}

// wait waits for a place.
func (s *slots) wait(ctx context.Context) error {
	select {
	case s.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// free gives a place back. That a trouble is over is said when a quarter is free:
// else it would begin and end all the time.
func (s *slots) free() {
	<-s.places
	if len(s.places) < cap(s.places)*3/4 && s.full.Load() && s.full.Swap(false) {
		s.log.Info("there is room again over gRPC", "what", s.what)
	}
}

// busy is the status of what is one too many.
func busy(why error) error {
	return failed(codes.ResourceExhausted, plegdv1.Reason_REASON_BUSY, why, nil)
}
