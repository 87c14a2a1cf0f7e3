package client

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// From says where to begin. At most one of its fields is set. The zero From is
// from now on.
type From struct {
	Position string    // after this one
	Time     time.Time // from the first event on that was observed at this time or later
	Snapshot bool      // all pods first; of Watch only
}

func (f From) check() error {
	set := 0
	for _, is := range []bool{f.Position != "", !f.Time.IsZero(), f.Snapshot} {
		if is {
			set++
		}
	}
	if set > 1 {
		return fmt.Errorf("%w: a position, a time and a snapshot are three ways to begin: only one may be set", ErrInvalid)
	}
	return nil
}

// WatchOptions say what Watch yields. The zero WatchOptions are all events from
// now on.
type WatchOptions struct {
	From   From
	Filter *Filter
	// Full has snapshots with the runtime's own status messages.
	Full bool
	// StartOver has a new snapshot come where events are no longer kept, instead of
	// an ExpiredError.
	StartOver bool
	// Once ends the sequence, without an error, when it has caught up: after the
	// snapshot, or after all events that there are.
	Once bool
	// Live has events come before they are written. They have Event.Live set and no
	// position to go on from; after a broken connection some may come again.
	Live bool
	// Keepalive is the longest time without an Update, 1 s to 1 h; 0 is 30 s.
	Keepalive time.Duration
}

// Update is one step of a Watch. It is a snapshot, an event or, if it has
// neither, only says how far the reader has come.
type Update struct {
	// Pods are all that are chosen, if it is a snapshot: not nil then.
	Pods []*Pod
	// Lost says, of a snapshot that comes in the place of events (StartOver), why.
	Lost *ExpiredError
	// Event is set if it is one.
	Event *Event
	// Position is the one to go on from after this: all events up to it have come
	// that the filter lets through. Of a live event it is that of the last event
	// before it that is known to be written.
	Position string
}

// Events yields events until ctx ends: see WatchOptions for more. The last pair
// has the error and no event: ctx's, an ExpiredError, or another one that trying
// again would not change. Breaking out of the loop ends it too.
func (c *Client) Events(ctx context.Context, from From, filter *Filter) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		if from.Snapshot {
			yield(nil, fmt.Errorf("%w: a snapshot has pods, not events; use Watch", ErrInvalid))
			return
		}
		for u, err := range c.Watch(ctx, WatchOptions{From: from, Filter: filter}) {
			if (err != nil || u.Event != nil) && !yield(u.event(), err) {
				return
			}
		}
	}
}

func (u *Update) event() *Event {
	if u == nil {
		return nil
	}
	return u.Event
}

// Watch yields updates until ctx ends. It begins with a snapshot if one is asked
// for, else with an Update that has nothing but a position. The last pair has the
// error and no update, as with Events; with WatchOptions.Once there is none at
// a good end.
func (c *Client) Watch(ctx context.Context, o WatchOptions) iter.Seq2[*Update, error] {
	return func(yield func(*Update, error) bool) {
		if err := o.From.check(); err != nil {
			yield(nil, err)
			return
		}
		if err := c.newWatcher(o, yield).run(ctx); err != nil {
			yield(nil, err)
		}
	}
}
