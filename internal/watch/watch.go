// Package watch is what the readers of the API get, over gRPC and over HTTP
// alike: a snapshot of pods if asked for, then the events after it, chosen by a
// selection, with bookmarks where nothing else comes.
//
// A Watch pulls: it holds a position and what one read of the journal brought,
// however slowly its reader takes that.
package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/selection"
)

// Bounds of Request.Keepalive, and what zero stands for.
const (
	KeepaliveMin     = time.Second
	KeepaliveMax     = time.Hour
	KeepaliveDefault = 30 * time.Second
)

var (
	// ErrRequest is wrapped by all errors that a Request is the cause of, but for
	// positions that have expired.
	ErrRequest = errors.New("invalid request")
	// ErrUnknown: what pods there are is not known yet.
	ErrUnknown = errors.New("pods are not known yet")
)

// Source is what is read. *pleg.Generator is one.
type Source interface {
	Subscribe(from *pleg.Position) (*pleg.Subscription, error)
	Pods() ([]pleg.Pod, pleg.Position)
	Oldest() pleg.Position
	Health() pleg.Health
}

// Request says where to begin and what to send. The zero Request is all events
// from now on.
type Request struct {
	// At most one of these three is set.
	Position *pleg.Position // after this one
	Time     time.Time      // from the first event on that was observed at this time or later, of those that are kept
	Snapshot bool           // all pods first, then the events after them

	Selection *selection.Selection // nil for all
	Keepalive time.Duration        // longest silence; 0 for KeepaliveDefault
}

// check returns an error that wraps ErrRequest.
func (r *Request) check(now time.Time) error {
	set := 0
	for _, is := range []bool{r.Position != nil, !r.Time.IsZero(), r.Snapshot} {
		if is {
			set++
		}
	}
	switch {
	case set > 1:
		return fmt.Errorf("%w: a position, a time and a snapshot are three ways to begin: only one may be set", ErrRequest)
	case r.Keepalive != 0 && (r.Keepalive < KeepaliveMin || r.Keepalive > KeepaliveMax):
		return fmt.Errorf("%w: keepalive %v: must be from %v to %v", ErrRequest, r.Keepalive, KeepaliveMin, KeepaliveMax)
	case r.Time.After(now):
		return fmt.Errorf("%w: time %s: must not be in the future", ErrRequest, r.Time.Format(time.RFC3339Nano))
	}
	return nil
}

// Bookmark says how far a reader has come: it has all events up to Position that
// its selection lets through, of all that there are.
type Bookmark struct {
	Position    pleg.Position
	SnapshotEnd bool
}

// Message is one of three.
type Message struct {
	Pods     []pleg.Pod  // the snapshot; nil if it is another message
	Event    *pleg.Event // shared with other readers: not to be changed
	Bookmark *Bookmark
}

// Watch is one reader's. It is for one goroutine.
type Watch struct {
	sub       *pleg.Subscription
	sel       *selection.Selection
	keepalive time.Duration
	quiet     time.Time // a message is due then
	since     int64     // events observed before, ns, are left out until one was not; 0 for none
	pods      []pleg.Pod
	state     state
}

// state is what comes next.
type state uint8

const (
	sendEvents state = iota
	sendPods
	sendSnapshotEnd
)

// New begins a watch. Errors wrap ErrRequest, ErrUnknown or pleg.ErrExpired, or
// are the subscription's.
func New(src Source, r Request) (*Watch, error) {
	now := time.Now()
	if err := r.check(now); err != nil {
		return nil, err
	}
	w := &Watch{sel: r.Selection, keepalive: r.Keepalive}
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
		oldest := src.Oldest()
		w.since, from = r.Time.UnixNano(), &oldest
	}
	var err error
	w.sub, err = src.Subscribe(from)
	return w, err
}

// Next returns the next message and waits for it until ctx ends. Other errors
// are those of pleg.Subscription.
func (w *Watch) Next(ctx context.Context) (Message, error) {
	switch w.state {
	case sendPods:
		w.state = sendSnapshotEnd
		pods := w.pods
		w.pods = nil
		return w.due(Message{Pods: pods}), nil
	case sendSnapshotEnd:
		w.state = sendEvents
		return w.due(Message{Bookmark: &Bookmark{Position: w.sub.Position(), SnapshotEnd: true}}), nil
	}
	waiting, cancel := context.WithDeadline(ctx, w.quiet)
	defer cancel()
	for {
		ev, err := w.sub.Next(waiting)
		switch {
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			return w.due(Message{Bookmark: &Bookmark{Position: w.sub.Position()}}), nil
		case err != nil:
			return Message{}, err
		case w.selected(ev):
			return w.due(Message{Event: ev}), nil
		case waiting.Err() != nil && ctx.Err() == nil: // much was read, and nothing of it selected
			return w.due(Message{Bookmark: &Bookmark{Position: w.sub.Position()}}), nil
		}
	}
}

// Position returns the one to go on from after the last message.
func (w *Watch) Position() pleg.Position { return w.sub.Position() }

func (w *Watch) due(m Message) Message {
	w.quiet = time.Now().Add(w.keepalive)
	return m
}

func (w *Watch) selected(ev *pleg.Event) bool {
	if ev.ObservedAt < w.since {
		return false
	}
	w.since = 0 // the clock may have been set back since; what follows, follows
	return w.sel.Event(ev)
}

// Pods returns the pods that are selected, and the position that continues
// them. What was never listed is unknown, and unknown is never empty: without a
// full list in this run, or pods of an earlier one, the error wraps ErrUnknown.
func Pods(src Source, sel *selection.Selection) ([]pleg.Pod, pleg.Position, error) {
	unlisted := Unlisted(src.Health()) // asked first, so that a list that is told of is also in the pods
	all, at := src.Pods()
	if unlisted != nil && !slices.ContainsFunc(all, func(p pleg.Pod) bool { return p.Restored }) {
		return nil, pleg.Position{}, unlisted
	}
	pods := []pleg.Pod{}
	for i := range all {
		if sel.Pod(&all[i]) {
			pods = append(pods, all[i])
		}
	}
	return pods, at, nil
}

// Unlisted says why there was no full list in this run yet, nil if there was.
// The error wraps ErrUnknown.
func Unlisted(h pleg.Health) error {
	if h.Listed {
		return nil
	}
	why := "the runtime was not listed yet"
	for _, c := range h.Checks {
		if c.Name == pleg.CheckRelist && c.Reason != "" {
			why = c.Reason
		}
	}
	return fmt.Errorf("%w: %s", ErrUnknown, why)
}
