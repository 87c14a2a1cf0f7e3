package arbiter

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// retry spaces the tries of a failing store.
type retry struct {
	backoff *backoff.ExponentialBackOff
	at      int64 // monotonic ns of the next try, 0 when nothing is stuck
}

const (
	retryFirst = 100 * time.Millisecond // a busy disk is over that soon
	retryMost  = 10 * time.Second       // a full one is noticed to be free again within that
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

// start reserves the first block of numbers and, after anything but a clean
// stop, journals which numbers it skips (rule D2).
func (l *Loop) start() error {
	next, skipFrom := uint64(1), uint64(0)
	switch {
	case l.base.Next != 0:
		next = l.base.Next
	case l.base.Reserved != 0:
		next = l.base.Reserved + 1
		skipFrom = l.base.Last + 1
	}
	l.alloc, l.last = timestamps.NewAllocator(next, next-1), l.base.Last
	if err := l.reserve(1); err != nil {
		return fmt.Errorf("state: first write: %w", err)
	}
	if skipFrom != 0 && skipFrom < next {
		now := l.now()
		l.pending.add(&Output{Changes: store.Batch{Events: []store.Event{{
			Type: store.SequenceSkipped, From: skipFrom, To: next - 1,
			ObservedAt: now.Stamp.Wall, BootID: l.cfg.BootID, Running: now.Running,
		}}}})
	}
	return nil
}

// meta is the meta entry as of now. Numbers up to reserved may be in use.
func (l *Loop) meta(reserved uint64) store.Meta {
	return store.Meta{
		Schema: store.Schema, Runtime: l.runtime, Epoch: l.base.Epoch, Reserved: reserved,
		Tick: l.counter.Last(), Running: l.running(int64(l.cfg.Clock.Mono())), Horizon: l.core.Horizon(),
		BootID: l.cfg.BootID, Last: l.last,
	}
}

// errNumbers: 2^53 numbers of one epoch are used up, which at the default
// commit rate and full parts takes over a thousand years.
var errNumbers = errors.New("no position numbers left in this epoch")

// reserve makes a block durable in a transaction of its own.
func (l *Loop) reserve(n int) error {
	limit, ok := l.alloc.Reservation(n)
	if !ok {
		return errNumbers
	}
	began := l.cfg.Clock.Mono()
	err := l.cfg.Store.Commit(&store.Batch{Meta: l.meta(limit)})
	l.cfg.Observer.Committed(l.cfg.Clock.Mono()-began, 0, err)
	if err != nil {
		return err
	}
	l.alloc.Extend(limit)
	return nil
}

// writeAt returns when the next write is due, monotonic ns, 0 for none.
func (l *Loop) writeAt() int64 {
	switch {
	case l.retry.at != 0:
		return l.retry.at
	case l.pending.changes():
		// Spaced under load, at once when idle (rule D1).
		now := int64(l.cfg.Clock.Mono())
		at := time.Unix(0, now)
		r := l.limiter.ReserveN(at, 1)
		delay := r.DelayFrom(at)
		r.CancelAt(at)
		return now + int64(delay)
	default:
		return 0
	}
}

// write commits and publishes what is pending, if it is time to. The error is
// one that no further try would change.
func (l *Loop) write() error {
	now := int64(l.cfg.Clock.Mono())
	if len(l.stuck) > 0 {
		if now < l.retry.at {
			return nil
		}
		if err := l.writeParts(); err != nil || len(l.stuck) > 0 {
			return err
		}
	}
	if !l.pending.changes() {
		if !l.pending.effects.empty() {
			l.publish(&part{effects: l.pending.effects})
			l.pending.effects = effects{}
		}
		return nil
	}
	if !l.limiter.AllowN(time.Unix(0, now), 1) {
		return nil
	}
	l.stuck = l.pending.split()
	return l.writeParts()
}

// hopeless lists what a store says when trying the same again never helps. A
// damaged one is set aside by the next start, and a batch that was refused was
// made from a state that can't be trusted: going on would only hold back for
// ever what is new.
var hopeless = []error{store.ErrDamaged, store.ErrBatch, store.ErrConflict, store.ErrClosed, errNumbers}

func isHopeless(err error) bool {
	return slices.ContainsFunc(hopeless, func(target error) bool { return errors.Is(err, target) })
}

// writeParts commits the parts in order until one fails. A failed one keeps
// its numbers and is tried again unchanged, since whether it was written is
// not known (rule D3). The error is one that no further try would change.
func (l *Loop) writeParts() error {
	for len(l.stuck) > 0 {
		p := &l.stuck[0]
		if err := l.commit(p); err != nil {
			now, mono := l.cfg.Clock.Wall(), int64(l.cfg.Clock.Mono())
			l.health.storeFailed(err, now, mono)
			if isHopeless(err) {
				return fmt.Errorf("state can't be written any more: %w", err)
			}
			if l.retry.backoff == nil {
				l.retry.backoff = backoff.NewExponentialBackOff(backoff.WithInitialInterval(retryFirst),
					backoff.WithMaxInterval(retryMost), backoff.WithMaxElapsedTime(0))
			}
			l.retry.at = mono + int64(l.retry.backoff.NextBackOff())
			return nil
		}
		l.publish(p)
		l.progress.Store(int64(l.cfg.Clock.Mono())) // many parts on a slow disk are progress too
		l.stuck[0] = part{}
		l.stuck = l.stuck[1:]
	}
	l.stuck, l.retry = nil, retry{}
	l.health.storeWorks()
	return nil
}

// commit numbers a part, once, and writes it.
func (l *Loop) commit(p *part) error {
	if !p.numbered {
		if uint64(len(p.batch.Events)) > l.alloc.Left() {
			if err := l.reserve(len(p.batch.Events)); err != nil {
				return err
			}
		}
		first, err := l.alloc.Take(len(p.batch.Events))
		if err != nil {
			return err
		}
		for i := range p.batch.Events {
			p.batch.Events[i].Position = timestamps.Position{Epoch: l.base.Epoch, Seq: first + uint64(i)}
		}
		// Half a block ahead the next is reserved in the same transaction, so
		// that reserving costs no sync of its own.
		reserved := l.alloc.Limit()
		if l.alloc.Left() < timestamps.Block/2 {
			if more, ok := l.alloc.Reservation(timestamps.Block); ok {
				reserved = more
			}
		}
		if n := len(p.batch.Events); n > 0 {
			l.last = p.batch.Events[n-1].Position.Seq
		}
		p.batch.Meta = l.meta(reserved)
		p.numbered = true
	}
	began := l.cfg.Clock.Mono()
	err := l.cfg.Store.Commit(&p.batch)
	l.cfg.Observer.Committed(l.cfg.Clock.Mono()-began, len(p.batch.Events), err)
	if err != nil {
		return err
	}
	l.alloc.Extend(p.batch.Meta.Reserved)
	return nil
}

// publish shows readers what is durable.
func (l *Loop) publish(p *part) {
	l.view.apply(p, l.feed.append)
	now := l.cfg.Clock.Wall().UnixNano()
	for i := range p.batch.Events {
		ev := &p.batch.Events[i]
		var latency time.Duration
		if ev.OccurredAt > 0 && ev.Change == "" {
			latency = time.Duration(max(1, now-ev.OccurredAt))
		}
		l.cfg.Observer.Published(ev, latency)
	}
}

// stop takes what still waits, writes it and gives the unused numbers back. A
// store that fails gets one try, since a clean stop has 3 s in all.
func (l *Loop) stop() error {
	for _, in := range l.inbox.take() {
		if err := l.step(in); err != nil {
			return errors.Join(err, l.abandon())
		}
	}
	for len(l.stuck) > 0 || l.pending.changes() {
		if len(l.stuck) == 0 {
			l.stuck = l.pending.split()
		}
		if err := l.writeParts(); err != nil {
			return err
		}
		if len(l.stuck) > 0 {
			return fmt.Errorf("state could not be written before the end, the next start finds the rest out again: %w", l.health.storeError())
		}
	}
	if err := l.write(); err != nil { // what needed no writing
		return errors.Join(err, l.abandon())
	}
	return l.giveBack()
}

// abandon ends a loop whose inputs can't be trusted: what they led to is not
// written. Unless a write is in doubt, the unused numbers are given back.
func (l *Loop) abandon() error {
	if len(l.stuck) > 0 {
		return nil
	}
	return l.giveBack()
}

// giveBack notes that the numbers after those used are free (rule D2).
func (l *Loop) giveBack() error {
	meta := l.meta(l.alloc.Next() - 1)
	meta.Next = l.alloc.Next()
	if err := l.cfg.Store.Commit(&store.Batch{Meta: meta}); err != nil {
		return fmt.Errorf("state: last write: %w", err)
	}
	return nil
}
