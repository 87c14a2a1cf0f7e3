package arbiter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

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
	case e.Asked.Epoch != e.Oldest.Epoch && e.Asked.Epoch != e.Newest.Epoch:
		return fmt.Sprintf("position %s is of another epoch (the state it belongs to is lost, or another agent's), oldest is %s", e.Asked, e.Oldest)
	case e.Asked.Epoch == e.Newest.Epoch && e.Asked.Seq > e.Newest.Seq:
		return fmt.Sprintf("position %s was not given out yet, newest is %s", e.Asked, e.Newest)
	}
	return fmt.Sprintf("position %s expired, oldest is %s", e.Asked, e.Oldest)
}

// Unwrap returns store.ErrExpired.
func (e *ExpiredError) Unwrap() error { return store.ErrExpired }

// Position returns that of the newest published event. The snapshot of pods
// that is read before is at most that old. While the store fails the epoch can
// change; positions of the one before can be read on from as long as memory
// has what follows them.
func (l *Loop) Position() timestamps.Position { return l.feed.position() }

// Oldest returns the oldest position that can be subscribed from.
func (l *Loop) Oldest() timestamps.Position { return l.feed.oldest() }

// Subscribe returns a subscription to the events after a position, nil for
// those after now. Every subscription sees every event, in order, each once,
// also across a change of epoch in this run; it costs nothing while it is not
// read. The error is an ExpiredError where events after the position are no
// longer there, or the position is of another epoch or was never given out, or
// was told from memory by an earlier run that could not write it any more.
func (l *Loop) Subscribe(from *timestamps.Position) (*Subscription, error) {
	now := l.feed.position()
	if from == nil {
		return &Subscription{feed: l.feed, after: now}, nil
	}
	if from.Epoch == now.Epoch && from.Seq > now.Seq {
		return nil, &ExpiredError{Asked: *from, Oldest: l.feed.oldest(), Newest: now}
	}
	s := &Subscription{feed: l.feed, after: *from}
	if err := s.fill(); err != nil {
		return nil, err
	}
	return s, nil
}

// Subscription is one reader's place in the journal. It is for one goroutine.
type Subscription struct {
	feed  *feed
	after timestamps.Position
	buf   []store.Event // read ahead, not yet returned
}

// Next returns the next event; it waits for one until ctx ends. Other errors
// are an ExpiredError, when the reader was slower than the journal's
// retention, and ErrStopped. The event is shared with other readers, labels
// and all: don't change it.
func (s *Subscription) Next(ctx context.Context) (*store.Event, error) {
	for len(s.buf) == 0 {
		s.feed.mu.Lock()
		changed, ended := s.feed.changed, s.feed.ended
		s.feed.mu.Unlock()
		if err := s.fill(); err != nil {
			return nil, err
		}
		switch {
		case len(s.buf) > 0:
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
	s.after = ev.Position
	return ev, nil
}

// Position returns that of the last event returned, for resuming after it.
func (s *Subscription) Position() timestamps.Position { return s.after }

// fill reads ahead, from memory where the events are still there, else from
// the store. It reads nothing when there is nothing yet.
func (s *Subscription) fill() error {
	known := s.fillFromTail()
	if !known {
		if err := s.fillFromStore(); err != nil {
			return err
		}
	}
	if len(s.buf) > 0 && s.buf[0].Type == store.SequenceSkipped && s.buf[0].Position.Epoch == s.after.Epoch && s.buf[0].From <= s.after.Seq {
		// An earlier run told that number from memory and was killed before it
		// could write it. What it told is told again after the skip, under other
		// numbers; so this reader can't go on as if nothing had happened (D2).
		s.buf = nil
		return s.expired()
	}
	return nil
}

// fillFromTail reports whether memory knows what comes next, and takes it.
func (s *Subscription) fillFromTail() bool {
	s.feed.mu.Lock()
	i, ok := s.feed.next(s.after)
	events := s.feed.tail[i:min(len(s.feed.tail), i+readAtOnce)]
	if i+len(events) > len(s.feed.tail)-s.feed.unwritten { // wrote will change some
		events = slices.Clone(events)
		s.feed.mu.Unlock()
	} else { // they stay as they are, so nobody has to wait while they are copied
		s.feed.mu.Unlock()
		if ok {
			events = slices.Clone(events)
		}
	}
	if ok && len(events) > 0 {
		// Copied, since a part of the tail would keep all of it alive for as
		// long as this reader doesn't go on.
		s.buf = events
	}
	return ok
}

func (s *Subscription) fillFromStore() error {
	events, err := s.feed.store.Events(s.after.Seq, readAtOnce)
	switch {
	case errors.Is(err, store.ErrExpired):
		return s.expired()
	case errors.Is(err, store.ErrClosed): // the owner closes it after the loop's end
		return fmt.Errorf("%w: what comes after %s was not read in time", ErrStopped, s.after)
	case err != nil:
		return fmt.Errorf("journal after %s: %w", s.after, err)
	}
	// What was committed a moment ago is shown when it is published.
	at := s.feed.position()
	for len(events) > 0 && events[0].Position.Epoch == at.Epoch && events[len(events)-1].Position.Seq > at.Seq {
		events = events[:len(events)-1]
	}
	// Memory was ahead of this reader, so where the store has nothing, or
	// numbers of another epoch, what comes next is lost.
	if len(events) == 0 || events[0].Position.Epoch != s.after.Epoch {
		return s.expired()
	}
	s.buf = events
	return nil
}

func (s *Subscription) expired() error {
	return &ExpiredError{Asked: s.after, Oldest: s.feed.oldest(), Newest: s.feed.position()}
}
