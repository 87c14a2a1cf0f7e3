package arbiter

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// newEpoch returns a random epoch, which no earlier one equals but by a chance
// of 2^-64.
func newEpoch() (e timestamps.Epoch) {
	for e.IsZero() {
		// crypto/rand.Read never fails; it ends the process instead.
		_, _ = rand.Read(e[:])
	}
	return e
}

// numbers gives out positions (rule D2). A number is told only if no later run
// can give it out again: because a durable reservation covers it, or because
// its epoch has never been named to the store.
type numbers struct {
	epoch timestamps.Epoch
	alloc timestamps.Allocator
	last  uint64 // the highest number of the epoch that any commit, failed or not, has put into the journal

	// unnamed: no commit has named the epoch yet, so the store can't hold it
	// and all its numbers are free. A commit that failed has named it: it may
	// have been written.
	unnamed bool
	// skip: the numbers from skipFrom to skipTo belong to an earlier run and
	// are to be skipped with an entry as soon as this one has a block.
	skipFrom, skipTo uint64
}

// errNumbers: 2^53 numbers of one epoch are used up, which at the default
// commit rate and full parts takes over a thousand years.
var errNumbers = errors.New("no position numbers left in this epoch")

// newNumbers goes on where the last run ended.
func newNumbers(base store.Meta) numbers {
	n := numbers{epoch: base.Epoch, last: base.Last}
	next := uint64(1)
	switch {
	case base.Epoch.IsZero():
		n.epoch = newEpoch()
	case base.Next != 0:
		next = base.Next
	case base.Reserved != 0:
		next = base.Reserved + 1
		n.skipFrom, n.skipTo = base.Last+1, base.Reserved
	}
	n.alloc = timestamps.NewAllocator(next, next-1)
	return n
}

// unnamedNumbers are those of an epoch that the store doesn't know and of which
// none was given out.
func unnamedNumbers(e timestamps.Epoch) numbers {
	return numbers{epoch: e, alloc: timestamps.NewAllocator(1, timestamps.MaxNumber), unnamed: true}
}

// start reserves the first block of numbers and, after anything but a clean
// stop, journals which numbers it skips. A store that has no room for that now
// may have it later, one that may not be written will not.
func (l *Loop) start() error {
	err := l.reserve(1)
	if err == nil {
		l.tellSkip()
		return nil
	}
	if !errors.Is(err, store.ErrUnwritable) {
		if err = l.failed(err); err == nil {
			return nil
		}
	}
	return fmt.Errorf("state: first write: %w", err)
}

// tellSkip journals that the rest of the last run's block is skipped.
func (l *Loop) tellSkip() {
	n := &l.numbers
	if n.skipFrom != 0 && n.skipFrom <= n.skipTo {
		now := l.now()
		skip := []store.Event{{
			Type: store.SequenceSkipped, From: n.skipFrom, To: n.skipTo,
			ObservedAt: now.Stamp.Wall, BootID: l.cfg.BootID, Running: now.Running,
		}}
		l.pending.add(&Output{Changes: store.Batch{Events: skip}})
		l.live.decide(skip)
	}
	n.skipFrom, n.skipTo = 0, 0
}

// meta is the meta entry as of now. Numbers up to reserved may be in use.
func (l *Loop) meta(reserved uint64) store.Meta {
	return store.Meta{
		Schema: store.Schema, Runtime: l.runtime, Epoch: l.numbers.epoch, Reserved: reserved,
		Tick: l.counter.Last(), Running: l.running(int64(l.cfg.Clock.Mono())), Horizon: l.core.Horizon(),
		BootID: l.cfg.BootID, Last: l.numbers.last,
	}
}

// reserve makes a block of at least n numbers durable in a transaction of its
// own. If that many are durable already, it only tries whether the store works.
func (l *Loop) reserve(n int) error {
	if l.numbers.unnamed {
		// From now on the store may hold this epoch, so what it reserves bounds
		// what may be told, whether or not this commit succeeds.
		used := l.numbers.alloc.Next() - 1
		l.numbers.alloc = timestamps.NewAllocator(used+1, used+timestamps.Block)
		l.numbers.unnamed = false
	}
	limit, ok := l.numbers.alloc.Reservation(n)
	if !ok {
		return errNumbers
	}
	if err := l.commit(&store.Batch{Meta: l.meta(limit)}); err != nil {
		return err
	}
	l.numbers.alloc.Extend(limit)
	return nil
}

// number gives events that are told before they are written their positions:
// from what is left of the durable block, else in a new epoch. A new one also
// begins when more would be held than may be, since then history is lost.
func (l *Loop) number(events []store.Event) {
	if len(events) == 0 {
		return
	}
	held, bytes := l.feed.held()
	if held > 0 && (held+len(events) > l.cfg.Unwritten || bytes+eventsHold(events) > l.cfg.UnwrittenBytes) {
		l.beginEpoch(unnamedNumbers(newEpoch()), "more events wait to be written than are kept")
	}
	first, err := l.numbers.alloc.Take(len(events))
	if err != nil {
		l.beginEpoch(unnamedNumbers(newEpoch()), "the reserved numbers are used up")
		first, _ = l.numbers.alloc.Take(len(events)) // all 2^53 are free
	}
	l.place(events, first)
}

func (l *Loop) place(events []store.Event, first uint64) {
	for i := range events {
		events[i].Position = timestamps.Position{Epoch: l.numbers.epoch, Seq: first + uint64(i)}
	}
}

// beginEpoch goes on under a new random epoch. The journal of the one before is
// dropped by the first commit that names the new one.
func (l *Loop) beginEpoch(fresh numbers, why string) {
	old := l.feed.position()
	l.numbers = fresh
	l.trouble.batch = nil // of the old epoch: what it holds is written with the rest
	l.view.moveTo(l.feed.begin(l.numbers.epoch))
	level := slog.LevelWarn
	if l.trouble.why == why {
		level = slog.LevelDebug // it may happen again and again for as long as the trouble lasts
	}
	l.trouble.why = why
	l.cfg.Log.Log(context.Background(), level, "events go on under a new epoch", "why", why, "epoch", l.numbers.epoch.String(), "last", old.String())
}
