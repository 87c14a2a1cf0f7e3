package watch

import (
	"context"
	"time"
)

// CheapTurn is how many events may be read in a turn that costs the least that one does.
const CheapTurn = busyEvents

// breathe ends a turn in which enough was read, or goes on waiting for the next one.
// It reports false if a message is due before that.
func (w *Watch) breathe(ctx context.Context) (over bool, err error) {
	if w.resting == nil && w.count-w.begun < w.most {
		return true, ctx.Err()
	}
	return w.endTurn(ctx)
}

// endTurn ends a turn and waits for the next one. It reports false if a message is due
// before that.
func (w *Watch) endTurn(ctx context.Context) (over bool, err error) {
	read := w.count - w.begun
	w.begun = w.count
	return w.rest(ctx, func() error { return w.turns.Rest(ctx, w.src, read) })
}

// giveWay lets others go first if the source is busy. It reports false if a message is
// due before that is over.
func (w *Watch) giveWay(ctx context.Context) (over bool, err error) {
	if w.turns == nil || !w.src.Busy() {
		return true, ctx.Err()
	}
	return w.rest(ctx, func() error { return w.turns.GiveWay(ctx, w.src) })
}

// rest has the reader pass on what it has gathered, and wait. While many others wait
// too that may take long. If a message is due before it is over, rest reports false,
// and the next rest goes on with the same wait: so the reader hears in time that there
// is nothing for it yet, and keeps its place.
func (w *Watch) rest(ctx context.Context, wait func() error) (over bool, err error) {
	if w.idle != nil {
		if err := w.idle(); err != nil {
			return false, err
		}
	}
	if w.turns == nil {
		return true, ctx.Err()
	}
	if w.resting == nil {
		w.resting = make(chan error, 1)
		go func(over chan<- error) { over <- wait() }(w.resting) // ends with ctx
	}
	due := time.NewTimer(time.Until(w.quiet))
	defer due.Stop()
	select {
	case err := <-w.resting:
		w.resting = nil
		w.most = w.turns.Most(w.src)
		return true, err
	case <-due.C:
		return false, nil
	}
}
