package watch

import (
	"context"
	"errors"
	"time"

	pleg "github.com/plegd/plegd"
)

// subscription is a pleg.LiveSubscription, or one that isn't live.
type subscription interface {
	Next(ctx context.Context) (ev *pleg.Event, live bool, err error)
	Position() pleg.Position
}

// durable is a subscription that isn't live.
type durable struct{ *pleg.Subscription }

// Next implements subscription.
func (d durable) Next(ctx context.Context) (ev *pleg.Event, live bool, err error) {
	ev, err = d.Subscription.Next(ctx)
	return ev, false, err
}

// next is an event that was read.
type next struct {
	*pleg.Event
	live bool
	at   pleg.Position // to go on from after it
}

// subscribe subscribes as is asked for.
func subscribe(src Source, from *pleg.Position, live bool) (subscription, error) {
	if !live {
		sub, err := src.Subscribe(from)
		return durable{sub}, err
	}
	lively, ok := src.(interface {
		SubscribeLive(from *pleg.Position) (*pleg.LiveSubscription, error)
	})
	if !ok {
		return nil, ErrNotLive
	}
	return lively.SubscribeLive(from)
}

// New begins a watch. Errors wrap ErrRequest, ErrUnknown or pleg.ErrExpired, or
// are the subscription's.
func New(src Source, r Request) (*Watch, error) {
	now := time.Now()
	if err := r.check(now); err != nil {
		return nil, err
	}
	w := &Watch{src: src, sel: r.Selection, keepalive: r.Keepalive, once: r.Once, idle: r.Idle, turns: r.Turns, state: sendBeginning, most: turnEvents}
	if w.keepalive == 0 {
		w.keepalive = KeepaliveDefault
	}
	w.quiet = now.Add(w.keepalive)
	from := r.Position
	switch {
	case r.Snapshot:
		pods, at, err := Pods(src, r.Selection)
		if err != nil {
			return nil, err
		}
		w.pods, w.state, from = pods, sendPods, &at
	case !r.Time.IsZero():
		w.state, w.since, w.live = skip, r.Time.UnixNano(), r.Live
		if err := w.fromOldest(); err != nil {
			return nil, err
		}
		return w, nil
	}
	sub, err := subscribe(src, from, r.Live)
	if err != nil {
		return nil, err
	}
	w.sub, w.at = sub, sub.Position()
	return w, nil
}

// fromOldest subscribes to all that is kept. What was the oldest may be dropped in
// the meantime; then something else is.
func (w *Watch) fromOldest() error {
	for {
		oldest := w.src.Oldest()
		sub, err := subscribe(w.src, &oldest, w.live)
		if errors.Is(err, pleg.ErrExpired) && w.src.Oldest() != oldest {
			continue
		}
		if err == nil {
			w.sub, w.at = sub, sub.Position()
		}
		return err
	}
}

// skipTo reads on until an event was observed at a time or later. What follows
// that one follows, whatever its time: the clock may have been set back. It is not
// done when it has been silent for long enough.
func (w *Watch) skipTo(ctx context.Context, ns int64) (done bool, err error) {
	for {
		if over, err := w.breathe(ctx); err != nil || !over {
			return false, err
		}
		ev, err := w.poll()
		if errors.Is(err, pleg.ErrExpired) { // of what is kept nothing is skipped yet
			err = w.fromOldest()
			if err == nil {
				continue
			}
		}
		if err != nil || ev.Event == nil {
			return true, err
		}
		if ev.ObservedAt >= ns {
			w.first = ev
			return true, nil
		}
		w.at = ev.at
		if w.count-w.begun == w.most && time.Now().After(w.quiet) {
			return false, nil
		}
	}
}
