package evented

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/note"
	"github.com/plegd/plegd/timestamps"
)

// errNoEvents is the reason for a stream that the runtime ends at once.
var errNoEvents = errors.New("the runtime ends the stream at once; CRI-O does so while enable_pod_events is off")

// ending is how a stream ended.
type ending struct {
	state    arbiter.StreamState // StreamDown or StreamUnsupported
	err      error
	progress bool // it worked for long enough to start over with short delays
}

// receiver is what the receiving goroutine shares with try.
type receiver struct {
	lost  atomic.Int64  // events not told to the arbiter since the last overflow
	grown chan struct{} // capacity 1: lost has grown
	first chan struct{} // closed with the first message
	once  sync.Once
	err   error // why it ended; read after done
	done  chan struct{}
}

// try opens a stream, reads it until it ends, and says how it ended.
func (w *Watcher) try(ctx context.Context) ending {
	w.mu.Lock()
	w.status.Tries++
	w.mu.Unlock()
	if w.cfg.Admit != nil {
		if err := w.cfg.Admit(ctx); errors.Is(err, ErrRefused) {
			return ending{state: arbiter.StreamUnsupported, err: err}
		} else if err != nil {
			return ending{state: arbiter.StreamDown, err: err}
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened := w.cfg.Clock.Mono()
	stream, err := w.cfg.Open(ctx)
	if err != nil {
		return judge(err, false, 0)
	}
	r := &receiver{grown: make(chan struct{}, 1), first: make(chan struct{}), done: make(chan struct{})}
	go w.receive(stream, r)
	up := w.supervise(r)
	w.tellLost(r) // what the spacing has held back

	lasted := w.cfg.Clock.Mono() - opened
	received := r.received()
	end := judge(r.err, received, lasted)
	end.progress = up && (lasted >= stableAfter || received && lasted >= stableAfter/5)
	return end
}

// judge tells an unsupported stream from one that ended.
func judge(err error, received bool, lasted time.Duration) ending {
	switch {
	case cri.Unimplemented(err) && !received:
		return ending{state: arbiter.StreamUnsupported, err: err}
	case errors.Is(err, io.EOF) && !received && lasted < endAtOnce:
		return ending{state: arbiter.StreamUnsupported, err: errNoEvents}
	case errors.Is(err, io.EOF):
		return ending{state: arbiter.StreamDown, err: fmt.Errorf("the runtime ended the stream: %w", err)}
	default:
		return ending{state: arbiter.StreamDown, err: err}
	}
}

// supervise does what has to do with time while the stream is read, and
// returns after it has ended. It reports whether the stream ever was up.
func (w *Watcher) supervise(r *receiver) (up bool) {
	grace := w.cfg.Clock.NewTimer(w.cfg.Grace)
	defer grace.Stop()
	hold := timestamps.Timer{} // between two overflows
	defer func() {
		if hold.Stop != nil {
			hold.Stop()
		}
	}()
	grown, first := r.grown, r.first
	for {
		select {
		case <-r.done:
			return up || r.received()
		case <-grace.C:
			grace.C = nil
			w.change(arbiter.StreamUp, nil)
			up = true
		case <-first:
			first, grace.C = nil, nil
			up = true // receive has said so
		case <-grown:
			w.tellLost(r)
			grown, hold = nil, w.cfg.Clock.NewTimer(overflowGap)
		case <-hold.C:
			hold.C, grown = nil, r.grown
		}
	}
}

// receive reads the stream to its end. It never waits for anything else: only
// short locks, and a sink that doesn't block, lie between two Recv.
func (w *Watcher) receive(stream Stream, r *receiver) {
	defer close(r.done)
	for {
		msg, err := stream.Recv()
		malformed := errors.Is(err, ErrMalformed)
		if err != nil && !malformed {
			r.err = err
			return
		}
		r.once.Do(func() {
			w.change(arbiter.StreamUp, nil)
			close(r.first)
		})
		// The stamp of receipt comes after StreamUp: an event may be stamped
		// later than it came, which says less, never earlier.
		at := w.cfg.Calls.Answered(timestamps.FromStream)
		lost, dropped := malformed, 0
		if !malformed {
			var event *arbiter.EventSeen
			event, dropped = cri.Event(msg, at)
			lost = !w.cfg.Sink.SubmitEvent(event)
		}
		w.count(at, lost && !malformed, malformed || dropped > 0)
		if lost {
			r.lost.Add(1)
			note.Leave(r.grown)
		}
	}
}

func (r *receiver) received() bool {
	select {
	case <-r.first:
		return true
	default:
		return false
	}
}

// count keeps the status.
func (w *Watcher) count(at timestamps.Stamp, lost, malformed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Events++
	w.status.LastEvent = at
	if lost {
		w.status.Lost++
	}
	if malformed {
		w.status.Malformed++
	}
}

// tellLost submits how many events were not told, if any.
func (w *Watcher) tellLost(r *receiver) {
	if n := r.lost.Swap(0); n > 0 {
		w.cfg.Sink.Submit(&arbiter.StreamOverflow{At: w.cfg.Calls.Answered(timestamps.FromStream), Lost: int(n)})
	}
}
