package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/selection"
	"github.com/plegd/plegd/internal/watch"
)

const (
	// batchEvents and batchBytes bound what comes together, which is what a watch does
	// in one of its turns: few enough that a cut costs little that was sent in vain, many
	// enough that a message more doesn't count.
	batchEvents, batchBytes = 256, 64 << 10
)

// Watch implements plegdv1.PodLifecycleServer.
func (s *Server) Watch(req *plegdv1.WatchRequest, stream grpc.ServerStreamingServer[plegdv1.WatchResponse]) error {
	request, err := watchRequest(req)
	if err != nil {
		return statusOf(err)
	}
	src, err := s.source()
	if err != nil {
		return err
	}
	if err := s.watches.enter(); err != nil {
		return err
	}
	defer s.watches.free()
	return s.through(stream, func(ctx context.Context, o *outlet) error {
		w := &sender{s: s, out: o, full: req.GetSnapshot().GetFull()}
		return w.run(ctx, src, request)
	})
}

// watchRequest understands a request.
func watchRequest(req *plegdv1.WatchRequest) (r watch.Request, err error) {
	switch req.Consistency {
	case plegdv1.Consistency_CONSISTENCY_UNSPECIFIED, plegdv1.Consistency_CONSISTENCY_DURABLE:
	case plegdv1.Consistency_CONSISTENCY_LIVE:
		r.Live = true
	default:
		return r, fmt.Errorf("%w: consistency %d: must be durable or live", watch.ErrRequest, req.Consistency)
	}
	r.Once = req.Once
	switch from := req.From.(type) {
	case *plegdv1.WatchRequest_Position:
		p, err := pleg.ParsePosition(from.Position)
		if err != nil {
			return r, fmt.Errorf("%w: position %.60q: must be one that came with an event, a bookmark or a list of pods", watch.ErrRequest, from.Position)
		}
		r.Position = &p
	case *plegdv1.WatchRequest_Time:
		if err := from.Time.CheckValid(); err != nil {
			return r, fmt.Errorf("%w: time: %w", watch.ErrRequest, err)
		}
		if r.Time = from.Time.AsTime(); !r.Time.After(time.Unix(0, 0)) {
			return r, fmt.Errorf("%w: time %v: must be after 1970", watch.ErrRequest, r.Time)
		}
	case *plegdv1.WatchRequest_Snapshot:
		r.Snapshot = true
	}
	if req.Keepalive != nil {
		if err := req.Keepalive.CheckValid(); err != nil {
			return r, fmt.Errorf("%w: keepalive: %w", watch.ErrRequest, err)
		}
		r.Keepalive = req.Keepalive.AsDuration()
	}
	r.Selection, err = newSelection(req.Filter)
	return r, err
}

// newSelection understands a filter.
func newSelection(f *plegdv1.Filter) (*selection.Selection, error) {
	if f == nil {
		return nil, nil
	}
	return selection.New(selection.Filter{
		Namespaces: f.Namespaces, Pods: f.Pods, UIDs: f.Uids, Containers: f.Containers, Labels: f.LabelSelector, Types: f.Types, Sources: f.Sources,
	})
}

// sender sends what one watch brings.
type sender struct {
	s    *Server
	out  *outlet
	in   *watch.Watch
	full bool

	entries [][]byte // events that are not sent yet
	size    int      // of them, bytes
	live    bool     // one of them is
	last    pleg.Position
}

func (w *sender) run(ctx context.Context, src watch.Source, r watch.Request) error {
	r.Idle, r.Turns = w.flush, w.s.cfg.Turns
	var err error
	if r.Snapshot {
		err = w.begin(ctx, src, r)
	} else {
		w.in, err = watch.New(src, r)
	}
	for err == nil {
		var m watch.Message
		if m, err = w.in.Next(ctx); err == nil {
			err = w.send(m)
		}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err // nobody is there to send to
	}
	if ferr := w.flush(); ferr != nil {
		return ferr
	}
	return err
}

// begin begins a watch with a snapshot, and sends that.
func (w *sender) begin(ctx context.Context, src watch.Source, r watch.Request) error {
	parts, err := w.s.takePods(ctx, w.full, func() (pods []pleg.Pod, err error) {
		if w.in, err = watch.New(src, r); err != nil {
			return nil, err
		}
		m, err := w.in.Next(ctx) // the snapshot comes first
		return m.Pods, err
	})
	if err != nil {
		return err
	}
	return parts.send(w.out, func(pods []*plegdv1.Pod) proto.Message {
		return &plegdv1.WatchResponse{Message: &plegdv1.WatchResponse_Pods{Pods: &plegdv1.Pods{Pods: pods}}}
	})
}

func (w *sender) send(m watch.Message) error {
	if m.Event == nil {
		if err := w.flush(); err != nil {
			return err
		}
		at := m.Bookmark.Position.String()
		return w.out.send(&plegdv1.WatchResponse{Message: &plegdv1.WatchResponse_Bookmark{
			Bookmark: &plegdv1.Bookmark{Position: at, SnapshotEnd: m.Bookmark.SnapshotEnd},
		}}, at)
	}
	entry, err := w.entry(&m)
	if err != nil {
		return err
	}
	w.entries, w.size, w.live, w.last = append(w.entries, entry), w.size+len(entry), w.live || m.Live, w.in.Position()
	if len(w.entries) < batchEvents && w.size < batchBytes {
		return nil
	}
	return w.flush()
}

// entry encodes an event. A live one has no position to be found again by.
func (w *sender) entry(m *watch.Message) ([]byte, error) {
	if m.Live {
		return encodeEvent(m.Event, true)
	}
	return w.s.encoded.event(m.Event)
}

// flush sends the events that wait for others.
func (w *sender) flush() error {
	if len(w.entries) == 0 {
		return nil
	}
	at, resume := w.last.String(), ""
	if w.live {
		resume = at
	}
	m := eventsMessage(w.entries, w.size, resume)
	clear(w.entries) // what is shared is not to be kept by an idle watch
	w.entries, w.size, w.live = w.entries[:0], 0, false
	return w.out.send(m, at)
}
