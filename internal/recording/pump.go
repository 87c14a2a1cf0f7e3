package recording

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// flushPeriod is how soon what came is in the file.
const flushPeriod = time.Second

// The reasons of an end that was to be.
const (
	EndAsked = "asked to stop"
	EndTime  = "the time was over"
	EndFull  = "the file is full"
)

// Record has ask ask the runtime over a connection that the tap sees, and writes what it
// sees, redacted if r is not nil, until ctx ends, or so much time has passed unless that
// is 0, or ask ends, or the file is full. Then it ends ask, and the recording. The error
// is that of the file; ask's own is why the recording ended.
func (t *Tap) Record(ctx context.Context, ask func(context.Context) error, w *Writer, r *Redactor, length time.Duration) (end End, err error) {
	asking, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var asked error
	over := make(chan struct{}) // with asking
	go func() {
		defer close(over)
		asked = ask(asking)
	}()
	flush := time.NewTicker(flushPeriod)
	defer flush.Stop()
	var late <-chan time.Time
	if length > 0 {
		timer := time.NewTimer(length)
		defer timer.Stop()
		late = timer.C
	}
	for err == nil && end.Reason == "" {
		select {
		case <-ctx.Done():
			end.Reason = EndAsked
		case <-late:
			end.Reason = EndTime
		case <-over:
			end.Reason = fmt.Sprint("who asked has ended: ", asked)
		case <-t.came:
			err = t.drain(w, r)
		case <-flush.C:
			err = w.Flush()
		}
	}
	end.At = t.End()
	stop()
	<-over
	if err == nil {
		err = t.drain(w, r)
	}
	if err == nil {
		err = w.Flush()
	}
	if errors.Is(err, ErrFull) {
		end.Reason, err = EndFull, nil
	}
	// Where nothing can be written, the end can't either, for the same reason.
	return end, cmp.Or(err, w.Close(end))
}

// drain writes what has come. It goes on when the file is full: what is left out is
// counted.
func (t *Tap) drain(w *Writer, r *Redactor) (err error) {
	for _, e := range t.take() {
		if r != nil {
			if err := r.Redact(&e); err != nil {
				return err
			}
		}
		switch werr := w.Write(&e); {
		case errors.Is(werr, ErrFull):
			err = werr
		case werr != nil:
			return werr
		}
	}
	return err
}
