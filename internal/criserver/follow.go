package criserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/retry"
	"github.com/plegd/plegd/internal/watch"
	"github.com/plegd/plegd/store"
)

// followFirst and followMost space the tries to read events that can't be read.
const followFirst, followMost = time.Second, 30 * time.Second

// follow reads the events of the generator, once there is one, until ctx ends. An
// error of reading them is this endpoint's trouble alone: it tries again.
func (s *Server) follow(ctx context.Context) error {
	delays, troubled := retry.Delays(followFirst, followMost), false
	read := func() {
		if troubled {
			s.cfg.Logger.Info("events are read again for the CRI endpoint", "socket", s.cfg.Socket)
		}
		troubled = false
		delays.Reset()
	}
	for ctx.Err() == nil {
		src, _, err := s.cfg.Source()
		if err != nil {
			wait(ctx, listedPoll, nil)
			continue
		}
		err = s.followFrom(ctx, src, read)
		switch {
		case errors.Is(err, pleg.ErrStopped):
			s.hub.close(errStopping, errStopping) // the rest of the agent is about to end too
			return nil
		case ctx.Err() != nil: // Run sees to the streams
		case errors.Is(err, pleg.ErrExpired):
			s.hub.close(errMissed, errStarting)
		default:
			s.hub.close(errMissed, errStarting)
			if !troubled {
				s.cfg.Logger.Error("events can't be read for the CRI endpoint: its event streams end, and none opens", "socket", s.cfg.Socket, "error", err)
			}
			troubled = true
			wait(ctx, retry.Jittered(delays.NextBackOff(), rand.Float64()), nil)
		}
	}
	return nil
}

// followFrom reads the events from now on. It calls read for each, and once if none
// comes for a while: then the trouble is over too.
func (s *Server) followFrom(ctx context.Context, src Source, read func()) error {
	sub, err := src.Subscribe(nil)
	if err != nil {
		return err
	}
	s.hub.open()
	s.shelf.tell() // whatever came before
	quiet, cancel := context.WithTimeout(ctx, followMost)
	defer cancel()
	ev, err := sub.Next(quiet)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		read()
		ev, err = sub.Next(ctx)
	}
	told := 0 // to how many readers, in this turn
	for ; err == nil; ev, err = sub.Next(ctx) {
		read()
		told, err = s.pass(ctx, src, ev, told)
		if err != nil {
			return err
		}
	}
	return err
}

// pass tells an event to all readers, of which so many were told others in the present
// turn, and returns how many are now. What is told in a turn is paid by a rest, so that
// many readers leave the processors to the writer: what waits meanwhile waits in the
// journal, and they don't fall behind for it. A turn is one event; but while the source
// is busy, when a rest is long, as many as have the price of one.
func (s *Server) pass(ctx context.Context, src Source, ev *pleg.Event, told int) (int, error) {
	switch ev.Type {
	case store.SandboxCreated, store.ContainerCreated, store.SandboxRemoved, store.ContainerRemoved:
		s.shelf.tell()
	}
	readers := s.hub.reading()
	if readers == 0 {
		return told, nil
	}
	m := tell(src, ev)
	if m == nil {
		return told, nil
	}
	s.hub.publish(m)
	if told += readers; told < watch.CheapTurn && src.Busy() {
		return told, nil
	}
	return 0, s.cfg.Turns.Rest(ctx, src, told)
}
