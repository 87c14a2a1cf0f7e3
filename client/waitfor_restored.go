package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// errRestored is why it isn't known what there is, if nothing else is.
var errRestored = fmt.Errorf("%w: what is known is from an earlier run of the agent, and was not confirmed since", ErrUnavailable)

// waiting is one WaitFor. It is for one goroutine.
type waiting struct {
	filter *Filter
	met    func([]*Pod) (bool, error)
	there  present
	// restored is the first snapshot of which something was from an earlier run, and seen
	// the first one after it of which nothing is. What has happened between them is still
	// to be read. nil if there is none.
	restored, seen *known
	doubt          map[string]bool // ids of what was restored and isn't so, until an event tells of it
	why            error           // it isn't known what there is
	ended          bool            // met has had enough
	err            error           // met's
}

// known is what a snapshot tells, as of a position.
type known struct {
	there    present
	position string
}

// take is called for each update of the watch, and reports whether to go on.
func (s *waiting) take(u *Update, _ error) bool {
	switch {
	case u.Pods != nil:
		now := &known{newPresent(u.Pods), u.Position}
		switch restored := slices.ContainsFunc(now.there.list(s.filter), (*Pod).GetRestored); {
		case restored && s.restored == nil:
			s.restored = now
			return false
		case restored:
			return false
		case s.restored != nil:
			s.seen = now
			return false
		}
		s.there = now.there
	case u.Event.GetPodKey() != "":
		s.there.take(u.Event)
	default:
		return true
	}
	s.why = nil
	return s.ask()
}

// ask calls met, and reports whether to go on.
func (s *waiting) ask() bool {
	s.ended, s.err = s.met(s.there.list(s.filter))
	s.ended = s.ended || s.err != nil
	return !s.ended
}

// catchUp has met see what has happened from the first snapshot on of which something
// was restored until all was seen, and then that. The watcher goes on after it.
func (s *waiting) catchUp(ctx context.Context, w *watcher) error {
	seen := s.seen
	s.there, s.doubt = s.restored.there, doubtful(s.restored.there, seen.there)
	from, o, yield := s.restored.position, w.o, w.yield
	w.from, w.o.Once, w.o.StartOver = From{Position: from}, true, false
	w.yield = func(u *Update, _ error) bool { return s.pass(u, seen.position) }
	err := w.run(ctx)
	w.from, w.o, w.yield = From{Position: seen.position}, o, yield
	if err != nil && !errors.Is(err, ErrExpired) {
		return err
	}
	if s.restored, s.seen, s.why = nil, nil, nil; !s.ended {
		s.there = seen.there
		s.ask()
	}
	return nil
}

// pass takes an event of the time until all was seen, which ends with that position.
func (s *waiting) pass(u *Update, end string) bool {
	switch {
	case u.Event == nil:
		return true
	case beyond(u.Event.Position, end):
		return false
	case u.Event.PodKey == "":
		return true
	}
	s.there.take(u.Event)
	if c := u.Event.Container; c != nil {
		delete(s.doubt, c.Id)
	} else {
		delete(s.doubt, u.Event.SandboxId)
	}
	for _, pod := range s.there.list(s.filter) {
		if slices.ContainsFunc(pod.Sandboxes, func(b *Sandbox) bool { return s.doubt[b.Id] }) ||
			slices.ContainsFunc(pod.Containers, func(c *Container) bool { return s.doubt[c.Id] }) {
			return true
		}
	}
	return s.ask()
}

// doubtful returns the ids of what was restored and has changed until all was seen, at
// a time that isn't known: maybe before it was restored. The rest has turned out to be
// as it was, and doesn't count as restored any more.
func doubtful(restored, seen present) map[string]bool {
	type state struct {
		state       string
		incarnation uint32
	}
	states := map[string]state{}
	for _, pod := range seen {
		for _, b := range pod.Sandboxes {
			states[b.Id] = state{b.State, b.Incarnation}
		}
		for _, c := range pod.Containers {
			states[c.Id] = state{c.State, c.Incarnation}
		}
	}
	ids := map[string]bool{}
	for _, pod := range restored {
		pod.Restored = false
		for _, b := range pod.Sandboxes {
			if b.Restored && states[b.Id] != (state{b.State, b.Incarnation}) {
				ids[b.Id] = true
			}
			b.Restored = false
		}
		for _, c := range pod.Containers {
			if c.Restored && states[c.Id] != (state{c.State, c.Incarnation}) {
				ids[c.Id] = true
			}
			c.Restored = false
		}
	}
	return ids
}

// beyond reports whether a position, EPOCH/NUMBER, comes after another one. Numbers
// count in an epoch, and what comes before the end may be of an earlier one.
func beyond(position, end string) bool {
	epoch, number, _ := strings.Cut(position, "/")
	endEpoch, endNumber, _ := strings.Cut(end, "/")
	n, _ := strconv.ParseUint(number, 10, 64) // the agent's positions have one
	last, _ := strconv.ParseUint(endNumber, 10, 64)
	return epoch == endEpoch && n > last
}
