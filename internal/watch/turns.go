package watch

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/plegd/plegd/internal/retry"
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
	// turnEvents is how many events are read in one turn, busyEvents how many while the
	// source is busy: as many as a turn costs at least, which is what a reader has paid
	// for that has given way.
	turnEvents, busyEvents = 256, int(turnTime / eventTime)
	// turnWait is how long a turn is waited for at most: what all readers that there
	// may be have done in one turn each. What was reserved by those who didn't wait to
	// the end is not given back where others have reserved since, and is nobody's debt.
	turnWait = 2 * time.Second
)

// Turns share out how much the readers of one process may do, so that they leave
// the processors to who writes what they read. A reader takes turns: in one it reads
// and sends some of what there is, after one it rests. Safe for concurrent use.
//
// While the source is busy, since a storm of events or answers comes in, the readers
// have a small part of their time: what is late for them stays in the journal, and what
// is late for the source may be lost.
type Turns struct {
	mu      sync.Mutex
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
	wait, giveBack := t.reserve(min(cost, turnCredit))
	if wait > 0 {
		if err := retry.Sleep(ctx, wait); err != nil {
			giveBack()
			return err
		}
	}
	return t.giveWay(ctx, src, cost) // a storm may have begun meanwhile
}

// reserve takes so much of the time, and returns how long it is until then. giveBack
// leaves it to the others, as far as they have not taken theirs since. What is too far
// away is not taken.
func (t *Turns) reserve(cost time.Duration) (wait time.Duration, giveBack func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.limiter.ReserveN(time.Now(), int(cost/time.Microsecond))
	if wait := r.Delay(); wait <= turnWait {
		return wait, r.Cancel
	}
	r.Cancel() // all of it, since nobody has taken any since
	return turnWait, func() {}
}

// Most is how many events may be read in a turn that begins now.
func (t *Turns) Most(src Busier) int {
	if src.Busy() {
		return busyEvents
	}
	return turnEvents
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
		if err := retry.Sleep(ctx, min(left, busyPoll)); err != nil {
			return err
		}
	}
	return nil
}
