package arbiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// tailSize is how many published events are kept in memory for readers that
// keep up; who is further behind reads the store.
const tailSize = 4096

// readAtOnce is how many events a subscription takes from the store in one
// short transaction.
const readAtOnce = 256

// ErrStopped is returned to readers once the loop has ended.
var ErrStopped = errors.New("the agent has stopped")

// ExpiredError says that a position is not, or no longer, in the journal. It
// wraps store.ErrExpired.
type ExpiredError struct {
	Asked  timestamps.Position
	Oldest timestamps.Position // the oldest position that can be read on from; Seq 0 when nothing was journaled
	Newest timestamps.Position // of the newest event; Asked is above it if it was not given out yet
}

// Error says what became of the position, and from where reading can go on.
func (e *ExpiredError) Error() string {
	switch {
	case e.Asked.Epoch != e.Oldest.Epoch:
		return fmt.Sprintf("position %s is of another epoch (the state it belongs to is lost, or another agent's), oldest is %s", e.Asked, e.Oldest)
	case e.Asked.Seq > e.Newest.Seq:
		return fmt.Sprintf("position %s was not given out yet, newest is %s", e.Asked, e.Newest)
	}
	return fmt.Sprintf("position %s expired, oldest is %s", e.Asked, e.Oldest)
}

// Unwrap returns store.ErrExpired.
func (e *ExpiredError) Unwrap() error { return store.ErrExpired }

// feed hands published events to subscriptions. Subscriptions pull, so a
// reader that stops reading holds nothing but its own position and what it has
// read ahead, readAtOnce events at most.
type feed struct {
	store store.Store
	epoch timestamps.Epoch

	mu      sync.Mutex
	tail    []store.Event // the newest published events, oldest first
	last    uint64        // number of the newest published event, or of the last one before this run
	changed chan struct{} // closed and replaced when something is published
	ended   bool
}

func newFeed(s store.Store, epoch timestamps.Epoch, last uint64) *feed {
	return &feed{store: s, epoch: epoch, last: last, changed: make(chan struct{})}
}

// append publishes committed events and returns the position readers are at.
func (f *feed) append(events []store.Event) timestamps.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(events) > 0 {
		f.tail = append(f.tail, events...)
		if n := len(f.tail) - tailSize; n > tailSize { // trim in large steps
			f.tail = append([]store.Event(nil), f.tail[n:]...)
		}
		f.last = events[len(events)-1].Position.Seq
		close(f.changed)
		f.changed = make(chan struct{})
	}
	return timestamps.Position{Epoch: f.epoch, Seq: f.last}
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.ended = true
		close(f.changed)
	}
}

func (f *feed) position() timestamps.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return timestamps.Position{Epoch: f.epoch, Seq: f.last}
}

// oldest returns the position to resume from so as to read all that is left.
func (f *feed) oldest() timestamps.Position {
	first := f.store.Journal().First
	return timestamps.Position{Epoch: f.epoch, Seq: max(first, 1) - 1}
}

// Position returns that of the newest published event. The snapshot of pods
// that is read before is at most that old.
func (l *Loop) Position() timestamps.Position { return l.feed.position() }

// Oldest returns the oldest position that can be subscribed from.
func (l *Loop) Oldest() timestamps.Position { return l.feed.oldest() }

// Subscribe returns a subscription to the events after a position, nil for
// those after now. Every subscription sees every event, in order, each once;
// it costs nothing while it is not read. The error is an ExpiredError where
// events after the position are no longer there, or the position is of another
// epoch or was never given out.
func (l *Loop) Subscribe(from *timestamps.Position) (*Subscription, error) {
	now := l.feed.position()
	if from == nil {
		return &Subscription{feed: l.feed, after: now.Seq}, nil
	}
	s := &Subscription{feed: l.feed, after: from.Seq}
	if from.Epoch != now.Epoch || from.Seq > now.Seq {
		return nil, &ExpiredError{Asked: *from, Oldest: l.feed.oldest(), Newest: now}
	}
	if from.Seq < now.Seq {
		if err := s.fill(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Subscription is one reader's place in the journal. It is for one goroutine.
type Subscription struct {
	feed  *feed
	after uint64
	buf   []store.Event // read ahead, not yet returned
}

// Next returns the next event; it waits for one until ctx ends. Other errors
// are an ExpiredError, when the reader was slower than the journal's
// retention, and ErrStopped. The event is shared with other readers, labels
// and all: don't change it.
func (s *Subscription) Next(ctx context.Context) (*store.Event, error) {
	for len(s.buf) == 0 {
		s.feed.mu.Lock()
		changed, behind, ended := s.feed.changed, s.feed.last > s.after, s.feed.ended
		s.feed.mu.Unlock()
		switch {
		case behind:
			if err := s.fill(); err != nil {
				return nil, err
			}
			continue
		case ended:
			return nil, ErrStopped
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
	ev := &s.buf[0]
	if s.buf = s.buf[1:]; len(s.buf) == 0 {
		s.buf = nil // an empty slice would still hold all that was read
	}
	s.after = ev.Position.Seq
	return ev, nil
}

// Position returns that of the last event returned, for resuming after it.
func (s *Subscription) Position() timestamps.Position {
	return timestamps.Position{Epoch: s.feed.epoch, Seq: s.after}
}

// fill reads ahead, from memory where the events are still there, else from
// the store.
func (s *Subscription) fill() error {
	if s.fillFromTail() {
		return nil
	}
	events, err := s.feed.store.Events(s.after, readAtOnce)
	if errors.Is(err, store.ErrExpired) {
		return &ExpiredError{Asked: s.Position(), Oldest: s.feed.oldest(), Newest: s.feed.position()}
	}
	if errors.Is(err, store.ErrClosed) { // the owner closes it after the loop's end
		return fmt.Errorf("%w: what comes after %s was not read in time", ErrStopped, s.Position())
	}
	if err != nil {
		return fmt.Errorf("journal after %s: %w", s.Position(), err)
	}
	for i := range events {
		events[i].Position.Epoch = s.feed.epoch
	}
	s.buf = events
	return nil
}

func (s *Subscription) fillFromTail() bool {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	tail := s.feed.tail
	if len(tail) == 0 || tail[0].Position.Seq > s.after+1 {
		return false
	}
	for i := range tail {
		if tail[i].Position.Seq > s.after {
			// Copied, since a part of the tail would keep all of it alive for as
			// long as this reader doesn't go on.
			s.buf = slices.Clone(tail[i:min(len(tail), i+readAtOnce)])
			return true
		}
	}
	return false
}
