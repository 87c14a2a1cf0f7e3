package arbiter

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// liveSize is how many events that were told already are kept for live readers.
const liveSize = 1024

// ErrBehind is returned to a live reader that was so slow that memory has not
// what it has not read. Subscribing again from its Position loses nothing.
var ErrBehind = errors.New("fell behind the live events")

// live holds the events of this run from when they are decided on. Each is told
// later under a position of its own, in the same order, so that counting both is
// enough to know which are still to come.
type live struct {
	mu      sync.Mutex
	events  []store.Event // without positions, oldest first
	first   uint64        // how many were decided before events[0]
	changed chan struct{} // closed and replaced when something is decided
	ended   bool
}

// decide takes events that a step has decided.
func (l *live) decide(events []store.Event) {
	if len(events) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.events = append(l.events, events...)
	close(l.changed)
	l.changed = make(chan struct{})
}

// told drops what is kept no longer: whoever begins to read needs what is not
// told yet, and a reader may be liveSize behind that.
func (l *live) told(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Trimmed in large steps.
	if old := int(n - l.first); old > 2*liveSize {
		l.first += uint64(old - liveSize)
		l.events = slices.Clone(l.events[old-liveSize:])
	}
}

func (l *live) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended = true
		close(l.changed)
	}
}

// has reports whether what was decided after the first n events is kept.
func (l *live) has(n uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return n >= l.first
}

// after returns the events decided after the first n, and, where there are none
// yet, what to wait for.
func (l *live) after(n uint64) (events []store.Event, changed chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch i := n - l.first; {
	case n < l.first:
		return nil, nil, ErrBehind
	case i < uint64(len(l.events)):
		return slices.Clone(l.events[i:min(uint64(len(l.events)), i+readAtOnce)]), nil, nil
	case l.ended:
		return nil, nil, ErrStopped
	}
	return nil, l.changed, nil
}

// SubscribeLive is Subscribe for a reader that doesn't wait for the disk: what
// is told already comes as for any reader, and what comes after that as soon as
// it is decided.
func (l *Loop) SubscribeLive(from *timestamps.Position) (*LiveSubscription, error) {
	sub, err := l.Subscribe(from)
	if err != nil {
		return nil, err
	}
	return &LiveSubscription{sub: sub, live: &l.live, resume: sub.Position()}, nil
}

// LiveSubscription is one reader's place. It is for one goroutine.
type LiveSubscription struct {
	sub    *Subscription // nil once everything told was read
	live   *live
	feed   *feed
	read   uint64 // how many of the events decided in this run come before the next one
	buf    []store.Event
	resume timestamps.Position
}

// Next returns the next event; it waits for one until ctx ends. A live event is
// not written yet and has no position: after a kill of the agent it is found out
// again, and may then be another. Each event comes once, in order. Other errors
// are those of Subscription.Next, and ErrBehind. The event is shared with other
// readers, labels and all: don't change it.
func (s *LiveSubscription) Next(ctx context.Context) (ev *store.Event, live bool, err error) {
	if s.sub == nil && len(s.buf) == 0 {
		s.catchUp()
	}
	if s.sub != nil && len(s.sub.buf) == 0 {
		at, told := s.sub.feed.count()
		if at == s.sub.after { // what is told later was decided after so many
			s.feed, s.read, s.sub = s.sub.feed, told, nil
		}
	}
	if s.sub != nil {
		ev, err = s.sub.Next(ctx)
		if err == nil && !ev.Volatile { // that may never be written
			s.resume = ev.Position
		}
		return ev, false, err
	}
	for len(s.buf) == 0 {
		events, changed, err := s.live.after(s.read)
		if err != nil {
			return nil, false, err
		}
		if s.buf = events; len(events) > 0 {
			break
		}
		select {
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case <-changed:
		}
	}
	ev = &s.buf[0]
	if s.buf = s.buf[1:]; len(s.buf) == 0 {
		s.buf = nil
	}
	s.read++
	return ev, true, nil
}

// catchUp lets a reader that is too slow for what is kept live go on with what
// was told since, as any other.
func (s *LiveSubscription) catchUp() {
	if !s.live.has(s.read) {
		if at, ok := s.feed.nth(s.read); ok {
			s.sub = &Subscription{feed: s.feed, after: at}
		}
	}
}

// Position returns that from which to subscribe again so as to lose nothing: what
// was returned live and is not written yet comes again.
func (s *LiveSubscription) Position() timestamps.Position {
	if s.feed != nil {
		if at, ok := s.feed.written(s.read); ok {
			s.resume = at
		}
	}
	return s.resume
}
