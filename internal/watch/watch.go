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
	"io"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/selection"
)

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
	most      int           // in the present turn, selected or not
	state     state
	once      bool
	idle      func() error
	turns     *Turns
	resting   chan error // a wait for others that goes on, and says here that it is over; else nil
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

// Next returns the next message and waits for it until ctx ends, which is to be the
// same one in all calls. Other errors are io.EOF, at the end of a watch that was asked
// for Once, and those of pleg.Subscription.
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
		over, err := w.breathe(ctx)
		switch {
		case err != nil:
			return Message{}, err
		case !over:
			return w.bookmark(false), nil
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
		case w.count-w.begun < w.most:
		case time.Now().After(w.quiet): // much was read, and nothing of it selected
			return w.bookmark(false), nil
		}
	}
}

// wait returns the next event, an empty one once a bookmark is due.
func (w *Watch) wait(ctx context.Context) (next, error) {
	if over, err := w.endTurn(ctx); err != nil || !over {
		return next{}, err
	}
	waiting, cancel := context.WithDeadline(ctx, w.quiet)
	defer cancel()
	ev, err := w.read(waiting)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return next{}, nil
	case err != nil:
		return next{}, err
	}
	w.first = ev                                          // it is read, and not sent yet
	if over, err := w.giveWay(ctx); err != nil || !over { // a hundred others were woken by the same event
		return next{}, err
	}
	return w.poll()
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
