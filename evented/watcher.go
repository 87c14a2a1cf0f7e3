package evented

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"google.golang.org/grpc/status"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/note"
	"github.com/plegd/plegd/internal/retry"
	"github.com/plegd/plegd/timestamps"
)

// Watcher keeps the event stream open. Make one with [New]; Run does the work.
// All methods are safe for concurrent use and, but for Run, never block.
type Watcher struct {
	cfg     Config
	ran     atomic.Bool
	reprobe chan struct{} // capacity 1: somebody is there again

	mu     sync.Mutex
	status Status
	kind   string // of the reason that was submitted last
}

// Status is what is known of the stream. Counts are since the start. Stamps are
// zero for what never happened.
type Status struct {
	State     arbiter.StreamState
	Since     timestamps.Stamp // when State last changed
	Err       string           // why it is not up, "" while it is
	LastErr   string           // why it was last not up
	Opened    uint64           // streams that came up; all but the first are reconnections
	Tries     uint64           // streams that were tried
	Failed    uint64           // of those, streams that could not be opened or have ended; one that was refused is neither
	Events    uint64           // messages received, those thrown away included
	Lost      uint64           // events thrown away because the arbiter was behind
	Malformed uint64           // messages that could not be decoded, or had parts without a usable id
	LastEvent timestamps.Stamp // when the last message was received
}

// New returns a Watcher. Errors are about the configuration.
func New(cfg Config) (*Watcher, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Watcher{cfg: cfg, reprobe: make(chan struct{}, 1)}, nil
}

// Reprobe says that a new connection to the runtime was made, so that a stream
// that ended or was unsupported is worth trying now.
func (w *Watcher) Reprobe() {
	note.Leave(w.reprobe)
}

// Status returns what is known of the stream.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Run keeps the stream open until ctx ends and then returns nil. The only error
// wraps [ErrUnsupported] and needs [Config.Required]. It may be called once.
func (w *Watcher) Run(ctx context.Context) error {
	if w.ran.Swap(true) {
		return ErrRan
	}
	delays := retry.Delays(w.cfg.BackoffBase, w.cfg.BackoffMax)
	ended := false // the last stream ended at once
	for {
		end := w.try(ctx)
		if over(ctx) {
			return nil // the stream ended because Run does
		}
		if !ended && errors.Is(end.err, errNoEvents) {
			// A runtime that is about to stop ends a young stream just so: one
			// more try tells.
			ended, end.state = true, arbiter.StreamDown
		} else {
			ended = false
		}
		if !errors.Is(end.err, ErrRefused) {
			w.mu.Lock()
			w.status.Failed++
			w.mu.Unlock()
		}
		w.change(end.state, end.err)
		if end.state == arbiter.StreamUnsupported && w.cfg.Required {
			return fmt.Errorf("%w: %w", ErrUnsupported, end.err)
		}
		if !w.pause(ctx, w.delay(end, delays)) {
			return nil
		}
	}
}

// over reports whether ctx has ended, which for Run is no error.
func over(ctx context.Context) bool { return ctx.Err() != nil }

// delay is how long to wait after a stream that ended so.
func (w *Watcher) delay(end ending, delays *backoff.ExponentialBackOff) time.Duration {
	if end.progress {
		delays.Reset()
	}
	if end.state == arbiter.StreamUnsupported {
		delays.Reset()
		return retry.Jittered(w.cfg.ProbeInterval, w.cfg.Random())
	}
	return retry.Jittered(delays.NextBackOff(), w.cfg.Random())
}

// pause waits for d, or until Reprobe says that it is worth trying now, but
// never less than the least delay. A Reprobe from before the pause counts for
// nothing: opening the stream that has just ended may itself have made the
// connection. It reports false when ctx has ended.
func (w *Watcher) pause(ctx context.Context, d time.Duration) bool {
	note.Take(w.reprobe)
	least := min(d, w.cfg.BackoffBase)
	return w.sleep(ctx, least, nil) && w.sleep(ctx, d-least, w.reprobe)
}

// sleep waits for d or a note in wake. It reports false when ctx has ended.
func (w *Watcher) sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := w.cfg.Clock.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-t.C:
	}
	return true
}

// change submits a change of the stream's state, or of the kind of reason for
// it: what is wrong now may be something else than what was wrong at first, and
// health tells the last reason it has heard. Of what stays the same the arbiter
// hears nothing; errors of one kind may differ from try to try.
func (w *Watcher) change(state arbiter.StreamState, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	why, kind := "", kindOf(err)
	if err != nil {
		why = err.Error()
		w.status.LastErr = why
	}
	w.status.Err = why
	if w.status.State == state && w.kind == kind {
		return
	}
	at := w.cfg.Calls.Answered(timestamps.FromStream)
	w.kind = kind
	if w.status.State != state {
		w.status.State, w.status.Since = state, at
		if state == arbiter.StreamUp {
			w.status.Opened++
		}
	}
	// Under the lock, so that no event can overtake its stream (invariant 2).
	w.cfg.Sink.Submit(&arbiter.StreamChanged{At: at, State: state, Err: why})
}

// kindOf tells reasons apart: by the gRPC code where there is one.
func kindOf(err error) string {
	if err == nil {
		return ""
	}
	if errors.Is(err, io.EOF) {
		return "end"
	}
	if s, ok := status.FromError(err); ok {
		return s.Code().String()
	}
	return err.Error()
}
