package criserver

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/retry"
)

const (
	// listedPoll is how often it is looked whether the first list of the run is
	// there: nothing is told of that.
	listedPoll = 200 * time.Millisecond
	// learnFirst and learnMost space the tries to learn what could not be learnt.
	learnFirst, learnMost = time.Second, 30 * time.Second
)

// errLacking: a list of the runtime has left out what the cache has.
var errLacking = errors.New("not in the runtime's list")

// learn reads the items that are lacking. Whoever needs them at the same time
// shares the calls, which end with the server.
func (s *Server) learn(ctx context.Context) error {
	l := s.shelf.attend(func(l *lesson) {
		s.tasks.Go(func() { s.shelf.end(l, s.learnNow(s.ctx)) })
	})
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lesson is one reading of what is lacking.
type lesson struct {
	done chan struct{} // closed when err is there
	err  error
}

// attend returns the lesson that goes on, or has one begun. Who attends leaves nothing
// behind, also while the runtime hangs.
func (h *shelf) attend(begin func(*lesson)) *lesson {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lesson == nil {
		h.lesson = &lesson{done: make(chan struct{})}
		begin(h.lesson)
	}
	return h.lesson
}

func (h *shelf) end(l *lesson, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lesson, l.err = nil, err
	close(l.done)
}

func (s *Server) learnNow(ctx context.Context) error {
	src, _, err := s.cfg.Source()
	if err != nil {
		return err
	}
	sandboxes, containers := s.shelf.lacking(src.Entities())
	if len(sandboxes)+len(containers) == 0 {
		return nil
	}
	defer s.shelf.inVain(slices.Concat(sandboxes, containers))
	client, err := s.runtime()
	if err != nil {
		return err
	}
	if len(sandboxes) > 0 {
		filter := new(runtimeapi.PodSandboxFilter)
		if len(sandboxes) == 1 {
			filter.Id = sandboxes[0]
		}
		items, err := client.ListPodSandbox(ctx, filter)
		if err != nil {
			return err
		}
		put(s.shelf, s.shelf.sandboxes, items, (*runtimeapi.PodSandbox).GetId)
	}
	if len(containers) > 0 {
		filter := new(runtimeapi.ContainerFilter)
		if len(containers) == 1 {
			filter.Id = containers[0]
		}
		items, err := client.ListContainers(ctx, filter)
		if err != nil {
			return err
		}
		put(s.shelf, s.shelf.containers, items, (*runtimeapi.Container).GetId)
	}
	if sandboxes, containers = s.shelf.lacking(src.Entities()); len(sandboxes)+len(containers) > 0 {
		return errLacking // or new since then, of which there is news
	}
	return nil
}

// learnAlways learns what is new before anybody asks for it, until ctx ends.
func (s *Server) learnAlways(ctx context.Context) error {
	delays := retry.Delays(learnFirst, learnMost)
	for {
		var again time.Duration // 0 with news alone
		src, _, err := s.cfg.Source()
		switch {
		case err != nil || !src.Health().Listed:
			again = listedPoll
		case s.learn(ctx) != nil:
			again = retry.Jittered(delays.NextBackOff(), rand.Float64())
		default:
			delays.Reset()
		}
		if !wait(ctx, again, s.shelf.news) {
			return nil
		}
	}
}
