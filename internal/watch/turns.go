package watch

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

const (
	// turnTime is what a turn costs at least, eventTime what it costs for each
	// event that was read, of the time that all readers have: a second in a second,
	// and turnCredit in advance. So what happens once in a while comes to a hundred
	// readers at once; and while much happens, all together have at most 5,000 turns a
	// second, one after the other, and read at most 160,000 events.
	turnTime, eventTime, turnCredit = 200 * time.Microsecond, 6 * time.Microsecond, 20 * time.Millisecond
	// busyShare is which part of that time readers have while the source is busy,
	// one after the other: 1 in so many. busyPoll is how often it is looked whether that
	// is over.
	busyShare, busyPoll = 40, 25 * time.Millisecond
)

// Turns share out how much the readers of one process may do, so that they leave
// the processors to who writes what they read. A reader takes turns: in one it reads
// and sends some of what there is, after one it rests. Safe for concurrent use.
//
// While the source is busy, since a storm of events or answers comes in, the readers
// have a small part of their time: what is late for them stays in the journal, and what
// is late for the source may be lost.
type Turns struct {
	limiter *rate.Limiter // of microseconds
	one     chan struct{} // held by the reader that goes on while the source is busy
}

// NewTurns returns the time that readers share.
func NewTurns() *Turns {
	return &Turns{limiter: rate.NewLimiter(rate.Limit(time.Second/time.Microsecond), int(turnCredit/time.Microsecond)), one: make(chan struct{}, 1)}
}

// Busier is what is written to.
type Busier interface {
	// Busy reports whether so much comes in that readers should wait.
	Busy() bool
}

// Rest ends a turn in which so many events were read, and waits until there is time
// for the next or ctx ends, whose error it returns.
func (t *Turns) Rest(ctx context.Context, src Busier, read int) error {
	cost := max(turnTime, time.Duration(read)*eventTime)
	r := t.limiter.ReserveN(time.Now(), int(min(cost, turnCredit)/time.Microsecond))
	if wait := r.Delay(); wait > 0 {
		if err := sleep(ctx, wait); err != nil {
			r.Cancel() // the others can have it
			return err
		}
	}
	return t.giveWay(ctx, src, cost) // a storm may have begun meanwhile
}

// GiveWay is for a reader that has waited for something to read. It waits, if the
// source is busy, until that is over or it is its turn all the same, or ctx ends, whose
// error it returns.
func (t *Turns) GiveWay(ctx context.Context, src Busier) error {
	return t.giveWay(ctx, src, turnTime)
}

func (t *Turns) giveWay(ctx context.Context, src Busier, cost time.Duration) error {
	if !src.Busy() {
		return nil
	}
	select {
	case t.one <- struct{}{}: // in the order in which they came
		defer func() { <-t.one }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for left := busyShare * cost; left > 0 && src.Busy(); left -= busyPoll {
		if err := sleep(ctx, min(left, busyPoll)); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
