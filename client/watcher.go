package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/retry"
)

const (
	// retryFirst and retryMost space the tries to find an agent again: a restart
	// takes less than a second, and an agent that is down costs one connect each
	// few seconds.
	retryFirst, retryMost = 50 * time.Millisecond, 3 * time.Second
	// defaultKeepalive is how often an agent says that there is nothing to say.
	defaultKeepalive = 30 * time.Second
	// silenceGrace is how much later than promised that may come, on a machine that
	// is swapping, before the agent counts as lost.
	silenceGrace = 15 * time.Second
)

// errBroken ends a watch that the loop has left.
var errBroken = errors.New("the loop was left")

// watcher is one Watch. It is for one goroutine.
type watcher struct {
	c      *Client
	o      WatchOptions
	from   From          // where the next stream begins
	at     string        // the position up to which all has come
	lost   *ExpiredError // why that is a snapshot
	yield  func(*Update, error) bool
	delays backoff.BackOff
	why    error // what was wrong last; nil since the agent has answered
	met    bool  // an agent has answered once
	away   bool  // Disconnected was called and Reconnected wasn't
}

func (c *Client) newWatcher(o WatchOptions, yield func(*Update, error) bool) *watcher {
	if o.Keepalive == 0 {
		o.Keepalive = defaultKeepalive
	}
	return &watcher{c: c, o: o, from: o.From, yield: yield, delays: retry.Delays(retryFirst, retryMost)}
}

// run returns the error to yield, nil where none is to be.
func (w *watcher) run(ctx context.Context) error {
	for {
		err := w.stream(ctx)
		switch {
		case err == nil || errors.Is(err, errBroken):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if err := w.judge(ctx, err); err != nil {
			return err
		}
	}
}

// judge returns what ended a stream if trying again would not help, else it waits
// until it is time to do so.
func (w *watcher) judge(ctx context.Context, err error) error {
	why, _ := reason(err)
	told := w.c.told(ctx, err)
	var expired *ExpiredError
	switch {
	case errors.As(told, &expired) && w.o.StartOver && !w.from.Snapshot:
		w.from, w.lost = From{Snapshot: true}, expired
		return nil
	case errors.Is(told, errOther):
		return told // trying again would not make it plegd
	case why == plegdv1.Reason_REASON_SLOW && w.met:
		return nil // the next stream goes on where the loop is; nobody was away
	case !errors.Is(told, ErrUnavailable) || !w.met && !w.c.options.Wait:
		return told
	}
	w.why = told
	if !w.away {
		w.away = true
		if w.c.options.Disconnected != nil {
			w.c.options.Disconnected(told)
		}
	}
	return retry.Sleep(ctx, retry.Jittered(w.delays.NextBackOff(), rand.Float64()))
}

// told is explain for errors of which some are explained already.
func (c *Client) told(ctx context.Context, err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return c.explain(ctx, err)
}

// stream reads one stream to its end. It returns nil at the good end of a watch
// that was asked for Once.
func (w *watcher) stream(ctx context.Context) error {
	if err := w.c.reach(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := w.c.api.Watch(ctx, w.request())
	if err != nil {
		return err
	}
	silence := time.AfterFunc(time.Hour, func() { cancel(errSilent) })
	defer silence.Stop()
	var pods []*Pod // of a snapshot that has begun
	for {
		silence.Reset(w.o.Keepalive + silenceGrace) // not while the loop is at work
		resp, err := stream.Recv()
		silence.Stop()
		switch {
		case errors.Is(err, io.EOF) && w.o.Once:
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%w: the agent has ended the watch", ErrUnavailable)
		case err != nil && errors.Is(context.Cause(ctx), errSilent):
			return fmt.Errorf("%w: %w", ErrUnavailable, errSilent)
		case err != nil:
			return err
		}
		w.back()
		switch m := resp.Message.(type) {
		case *plegdv1.WatchResponse_Pods:
			pods = append(pods, m.Pods.Pods...) // they are yielded as one
		case *plegdv1.WatchResponse_Events:
			for i, ev := range m.Events.Events {
				switch {
				case !ev.Live:
					w.reached(ev.Position)
				case i == len(m.Events.Events)-1 && m.Events.Position != "":
					w.reached(m.Events.Position)
				}
				if !w.yield(&Update{Event: ev, Position: w.at}, nil) {
					return errBroken
				}
			}
		case *plegdv1.WatchResponse_Bookmark:
			if w.from.Time.IsZero() {
				w.reached(m.Bookmark.Position)
			} else {
				w.at = m.Bookmark.Position // it may be before the time, until an event has come
			}
			update := &Update{Position: w.at}
			if m.Bookmark.SnapshotEnd {
				update.Pods, update.Lost = append([]*Pod{}, pods...), w.lost
				pods, w.lost = nil, nil
			}
			if !w.yield(update, nil) {
				return errBroken
			}
		default: // of a newer agent
		}
	}
}

// reached notes that all up to a position has come.
func (w *watcher) reached(position string) {
	w.at, w.from = position, From{Position: position}
}

// errSilent is why a stream is given up that should have said something.
var errSilent = errors.New("the agent says nothing, though it should have by now")

// back notes that the agent has answered.
func (w *watcher) back() {
	w.met, w.why = true, nil
	w.delays.Reset()
	if w.away {
		w.away = false
		if w.c.options.Reconnected != nil {
			w.c.options.Reconnected()
		}
	}
}

func (w *watcher) request() *plegdv1.WatchRequest {
	req := &plegdv1.WatchRequest{Filter: w.o.Filter, Once: w.o.Once, Keepalive: durationpb.New(w.o.Keepalive)}
	if w.o.Live {
		req.Consistency = plegdv1.Consistency_CONSISTENCY_LIVE
	}
	switch from := w.from; {
	case from.Snapshot:
		req.From = &plegdv1.WatchRequest_Snapshot{Snapshot: &plegdv1.Snapshot{Full: w.o.Full}}
	case from.Position != "":
		req.From = &plegdv1.WatchRequest_Position{Position: from.Position}
	case !from.Time.IsZero():
		req.From = &plegdv1.WatchRequest_Time{Time: timestamppb.New(from.Time)}
	}
	return req
}
