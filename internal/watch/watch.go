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
	"io"
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

// turnEvents is how many events are read in one turn, selected or not.
const turnEvents = 256

var (
	// ErrStopping ends what the end of the agent ends: each server says it so.
	ErrStopping = errors.New("the agent stops; go on with the next one")
	// ErrRequest is wrapped by all errors that a Request is the cause of, but for
	// positions that have expired.
	ErrRequest = errors.New("invalid request")
	// ErrNotLive: the source has no events before they are written.
	ErrNotLive = errors.New("events are not to be had before they are written")
	// ErrUnknown: what pods there are is not known yet.
	ErrUnknown = errors.New("pods are not known yet")
)

// Source is what is read. *pleg.Generator is one.
type Source interface {
	Subscribe(from *pleg.Position) (*pleg.Subscription, error)
	Pods() ([]pleg.Pod, pleg.Position)
	Oldest() pleg.Position
	Health() pleg.Health
	Busier
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
	// Live sends events before they are written, without a position; of a source that
	// can (ErrNotLive). What is told already comes as for any reader.
	Live bool
	// Once ends the watch, with io.EOF, when it has caught up: after the snapshot,
	// or all events that there are. A bookmark comes before the end.
	Once bool
	// Idle, if set, is called before a wait, for more or for the next turn: a reader
	// that gathers what it passes on can pass it on now. Its error is returned by Next.
	Idle func() error
	// Turns are what the watch takes its turns of; nil reads without a rest.
	Turns *Turns
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
	Live     bool        // of an event that is not written yet and has no position
	Bookmark *Bookmark
}

// Watch is one reader's. It is for one goroutine.
//
// The first message is the snapshot, if that was asked for, and then a bookmark
// that ends it; else a bookmark alone. So a reader always learns at once that the
// watch has begun, and from where to go on if it breaks before the first event.
type Watch struct {
	src       Source
	sub       subscription
	sel       *selection.Selection
	keepalive time.Duration
	quiet     time.Time // a message is due then
	pods      []pleg.Pod
	first     next          // read already, and the first to be sent; its Event is nil if there is none
	at        pleg.Position // to go on from after the last event that was sent or left out
	since     int64         // skip what was observed before, ns
	live      bool          // of what comes after that, see Request.Live
	count     int           // events that were read
	begun     int           // of them before the present turn
	state     state
	once      bool
	idle      func() error
	turns     *Turns
}

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

// state is what comes next.
type state uint8

const (
	skip state = iota
	sendPods
	sendSnapshotEnd
	sendBeginning
	sendEvents
	ended
)

// New begins a watch. Errors wrap ErrRequest, ErrUnknown or pleg.ErrExpired, or
// are the subscription's.
func New(src Source, r Request) (*Watch, error) {
	now := time.Now()
	if err := r.check(now); err != nil {
		return nil, err
	}
	w := &Watch{src: src, sel: r.Selection, keepalive: r.Keepalive, once: r.Once, idle: r.Idle, turns: r.Turns, state: sendBeginning}
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
		if err := w.breathe(ctx); err != nil {
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
		if w.count-w.begun == turnEvents && time.Now().After(w.quiet) {
			return false, nil
		}
	}
}

// breathe ends a turn in which enough was read.
func (w *Watch) breathe(ctx context.Context) error {
	if w.count-w.begun < turnEvents {
		return ctx.Err()
	}
	return w.endTurn(ctx)
}

// endTurn has the reader pass on what it has gathered, and waits for the next turn.
func (w *Watch) endTurn(ctx context.Context) error {
	if w.idle != nil {
		if err := w.idle(); err != nil {
			return err
		}
	}
	read := w.count - w.begun
	w.begun = w.count
	if w.turns == nil {
		return ctx.Err()
	}
	return w.turns.Rest(ctx, w.src, read)
}

// past is a context that has ended: with it a subscription returns what there is
// and doesn't wait.
var past = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// poll returns the next event, an empty one if there is none yet.
func (w *Watch) poll() (next, error) {
	if ev := w.first; ev.Event != nil {
		w.first = next{}
		return ev, nil
	}
	ev, err := w.read(past)
	if errors.Is(err, context.Canceled) {
		return next{}, nil
	}
	return ev, err
}

// read returns the next event and waits for it until ctx ends.
func (w *Watch) read(ctx context.Context) (next, error) {
	ev, live, err := w.sub.Next(ctx)
	if err != nil {
		return next{}, err
	}
	w.count++
	return next{ev, live, w.sub.Position()}, nil
}

// Next returns the next message and waits for it until ctx ends. Other errors
// are io.EOF, at the end of a watch that was asked for Once, and those of
// pleg.Subscription.
func (w *Watch) Next(ctx context.Context) (Message, error) {
	switch w.state {
	case skip:
		done, err := w.skipTo(ctx, w.since)
		if err != nil {
			return Message{}, err
		}
		if done {
			w.state = sendEvents
		}
		return w.bookmark(false), nil
	case sendPods:
		w.state = sendSnapshotEnd
		pods := w.pods
		w.pods = nil
		return w.due(Message{Pods: pods}), nil
	case sendSnapshotEnd:
		w.state = sendEvents
		if w.once {
			w.state = ended
		}
		return w.bookmark(true), nil
	case sendBeginning:
		w.state = sendEvents
		return w.bookmark(false), nil
	case ended:
		return Message{}, io.EOF
	case sendEvents:
	}
	for {
		if err := w.breathe(ctx); err != nil {
			return Message{}, err
		}
		ev, err := w.poll()
		if ev.Event == nil && err == nil {
			if w.once {
				w.state = ended
				return w.bookmark(false), nil
			}
			ev, err = w.wait(ctx)
		}
		switch {
		case err != nil:
			return Message{}, err
		case ev.Event == nil: // it was silent for long enough
			return w.bookmark(false), nil
		}
		w.at = ev.at
		switch {
		case w.sel.Event(ev.Event):
			return w.due(Message{Event: ev.Event, Live: ev.live}), nil
		case w.count-w.begun < turnEvents:
		case time.Now().After(w.quiet): // much was read, and nothing of it selected
			return w.bookmark(false), nil
		}
	}
}

// wait returns the next event, an empty one once a bookmark is due.
func (w *Watch) wait(ctx context.Context) (next, error) {
	if err := w.endTurn(ctx); err != nil {
		return next{}, err
	}
	waiting, cancel := context.WithDeadline(ctx, w.quiet)
	defer cancel()
	ev, err := w.read(waiting)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return next{}, nil
	case err == nil && w.turns != nil: // a hundred others were woken by the same event
		err = w.turns.GiveWay(ctx, w.src)
	}
	return ev, err
}

// Position returns the one to go on from after the last message.
func (w *Watch) Position() pleg.Position { return w.at }

func (w *Watch) bookmark(snapshotEnd bool) Message {
	if w.first.Event == nil {
		w.at = w.sub.Position() // of live events more may be written by now
	}
	return w.due(Message{Bookmark: &Bookmark{Position: w.at, SnapshotEnd: snapshotEnd}})
}

func (w *Watch) due(m Message) Message {
	w.quiet = time.Now().Add(w.keepalive)
	return m
}

// Pods returns the pods that are selected, and the position that continues
// them. What was never listed is unknown, and unknown is never empty: without a
// full list in this run, or selected pods of an earlier one, the error wraps ErrUnknown.
func Pods(src Source, sel *selection.Selection) ([]pleg.Pod, pleg.Position, error) {
	why := unlisted(src.Health()) // asked first, so that a list that is told of is also in the pods
	all, at := src.Pods()
	pods := []pleg.Pod{}
	for i := range all {
		if sel.Pod(&all[i]) {
			pods = append(pods, all[i])
		}
	}
	if why != nil && !slices.ContainsFunc(pods, func(p pleg.Pod) bool { return p.Restored }) {
		return nil, pleg.Position{}, why
	}
	return pods, at, nil
}

// Pod returns one pod by its key. Before the first full list of this run nobody knows
// that there is none, not even from restored pods, since it may have come meanwhile:
// the error wraps ErrUnknown then, later pleg.ErrNoPod.
func Pod(src interface {
	Health() pleg.Health
	Pod(key string) (pleg.Pod, error)
}, key string) (pleg.Pod, error) {
	why := unlisted(src.Health()) // asked first, as for Pods
	pod, err := src.Pod(key)
	if errors.Is(err, pleg.ErrNoPod) && why != nil {
		err = why
	}
	return pod, err
}

// unlisted says why there was no full list in this run yet, nil if there was.
// The error wraps ErrUnknown.
func unlisted(h pleg.Health) error {
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
