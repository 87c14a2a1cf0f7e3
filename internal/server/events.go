package server

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/plegd/plegd/internal/watch"
)

// events answers with the events after a position, as long as the client stays
// and reads.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	req, err := newEventRequest(r, time.Now())
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	src := s.source(w)
	if src == nil {
		return
	}
	out := newLines(w, wantsSSE(r), s.limits.write)
	req.watch.Keepalive = min(cmp.Or(req.watch.Keepalive, watch.KeepaliveDefault), s.limits.silence)
	req.watch.Idle, req.watch.Turns = out.flush, s.cfg.Turns
	reader, snapshot, err := s.begin(r, src, req, out.sse)
	if err != nil {
		writeProblem(w, err)
		return
	}
	defer snapshot.drop()
	out.begin()
	if r.Method == http.MethodHead {
		return
	}
	err = out.send(snapshot)
	snapshot.drop()
	if err == nil {
		err = out.copy(r.Context(), reader, req.limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.cfg.Logger.Info("a reader of events was cut: it did not read", "for", s.limits.write, "position", reader.Position())
	}
}

// begin begins to read, and prepares the snapshot, which is empty if none was asked
// for.
func (s *Server) begin(r *http.Request, src Source, req eventRequest, sse bool) (reader *watch.Watch, snapshot *prepared, err error) {
	if !req.watch.Snapshot {
		reader, err = watch.New(src, req.watch)
		return reader, &prepared{give: func() {}}, err
	}
	snapshot, err = prepare(r, func(p *prepared) error {
		if reader, err = watch.New(src, req.watch); err != nil {
			return err
		}
		m, err := reader.Next(r.Context()) // the snapshot comes first, at once
		if err != nil {
			return err
		}
		l := &lines{w: bufio.NewWriter(p), sse: sse}
		if err := l.message(&m); err != nil {
			return err
		}
		return l.flush()
	})
	return reader, snapshot, err
}

// copy sends what a reader gets until ctx ends, or a write fails, whose error it
// returns. What there is is gathered and sent in as few writes as it fits in,
// and the reader has it sent before it waits for more.
//
// An answer that ends as it was asked to ends with a bookmark, any other with an
// error, unless it is cut: so half an answer is never taken for a whole one.
func (l *lines) copy(ctx context.Context, reader *watch.Watch, limit int) error {
	for sent := 0; ; {
		m, err := reader.Next(ctx)
		switch {
		case errors.Is(err, io.EOF): // its last message was a bookmark
			return l.flush()
		case l.broken != nil:
			return l.broken
		case ctx.Err() != nil:
			return l.failed(watch.ErrStopping) // or the client is gone, and doesn't read it
		case err != nil:
			return l.failed(err)
		}
		if err := l.message(&m); err != nil {
			return err
		}
		if m.Event == nil {
			continue
		}
		if sent++; sent == limit {
			if err := l.bookmark(watch.Bookmark{Position: reader.Position()}); err != nil {
				return err
			}
			return l.flush()
		}
	}
}
