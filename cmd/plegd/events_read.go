package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/client"
)

// errEnough ends a reader that has all that it was asked for.
var errEnough = errors.New("enough")

// reading is one part of what `plegd events` reads.
type reading struct {
	once  bool      // end after what there is
	until time.Time // go on until then; zero for ever
}

// reads says how to come to the end that was asked for.
func (o *eventsOptions) reads(status agentStatus) ([]reading, error) {
	newest, err := pleg.ParsePosition(status.Position)
	if err != nil {
		return nil, fmt.Errorf("the agent sent its status: %w", err)
	}
	end := o.until.position
	if end != nil && end.Epoch != newest.Epoch {
		return nil, &otherEpochError{flag: "until", position: *end, newest: newest}
	}
	switch {
	case !o.follow, end != nil && end.Seq <= newest.Seq, o.until.set() && end == nil && !o.until.at.After(time.Now()):
		return []reading{{once: true}}, nil
	case end == nil && o.until.set():
		// What was observed until then may be told a little later.
		return []reading{{until: o.until.at}, {once: true}}, nil
	default:
		return []reading{{}}, nil
	}
}

// otherEpochError is about a position that nothing leads to.
type otherEpochError struct {
	flag             string
	position, newest pleg.Position
}

// Error names the position, and the newest that there is.
func (e *otherEpochError) Error() string {
	return fmt.Sprintf("--%s %s: is of another epoch (the state it belongs to is lost, or another agent's), newest is %s", e.flag, e.position, e.newest)
}

// Unwrap says that the position is of no use any more.
func (e *otherEpochError) Unwrap() error { return pleg.ErrExpired }

// beginning is where the first event is read from, in the first part.
func (o *eventsOptions) beginning(status agentStatus, first reading) client.From {
	switch {
	case o.since.position != nil:
		return client.From{Position: o.since.position.String()}
	case o.since.set():
		return client.From{Time: o.since.at}
	case o.follow && !o.until.set():
		return client.From{}
	case !first.once: // now, as when the end was found to lie ahead: it may not by the time of the watch
		return client.From{Position: status.Position}
	default:
		return client.From{Time: firstMoment}
	}
}

// read does one part, and returns where the next begins.
func (o *eventsOptions) read(ctx context.Context, agent *agentClient, w *eventWriter, from client.From, r reading) (client.From, error) {
	reading := ctx
	if !r.until.IsZero() {
		// Not a deadline, which the agent would be told of and might end the watch
		// by, a moment earlier.
		var cancel context.CancelFunc
		reading, cancel = context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(time.Until(r.until), cancel).Stop()
	}
	request := client.WatchOptions{From: from, Filter: o.request(), Once: r.once}
	if o.until.position != nil {
		request.Keepalive = time.Second // the end may be an event that isn't asked for
	}
	err := agent.each(reading, request, w.flush, func(u *client.Update) error {
		if u.Event != nil {
			ev, err := eventOf(u.Event)
			if err != nil {
				return err
			}
			if !o.until.at.IsZero() && time.Unix(0, ev.ObservedAt).After(o.until.at) { // which may be beyond what ns can say
				return errEnough
			}
			if err := w.write(ev); err != nil {
				return err
			}
		}
		from = client.From{Position: u.Position}
		return o.ended(u.Position)
	})
	if !r.until.IsZero() && reading.Err() != nil && ctx.Err() == nil && !errors.Is(err, errEnough) {
		return from, nil
	}
	return from, err
}

// ended returns errEnough when a position is the last that was asked for.
func (o *eventsOptions) ended(at string) error {
	if o.until.position == nil {
		return nil
	}
	p, err := pleg.ParsePosition(at)
	if err != nil {
		return fmt.Errorf("the agent sent a position: %w", err)
	}
	if p.Epoch == o.until.position.Epoch && p.Seq >= o.until.position.Seq {
		return errEnough
	}
	return nil
}

// eventWriter writes events to stdout.
type eventWriter struct {
	w      *bufio.Writer
	format func(*pleg.Event) ([]byte, error)
	limit  int // 0 for none
	n      int // written so far
}

func newEventWriter(out io.Writer, format func(*pleg.Event) ([]byte, error), limit int) *eventWriter {
	return &eventWriter{w: bufio.NewWriterSize(out, outputBuffer), format: format, limit: limit}
}

// write writes one event, and returns errEnough after the last.
func (w *eventWriter) write(ev *pleg.Event) error {
	text, err := w.format(ev)
	if err != nil {
		return fmt.Errorf("event %s: %w", ev.Position, err)
	}
	if len(text) == 0 {
		return nil
	}
	if _, err := w.w.Write(text); err != nil {
		return err
	}
	if w.n++; w.n == w.limit {
		return errEnough
	}
	return nil
}

func (w *eventWriter) flush() error { return w.w.Flush() }
