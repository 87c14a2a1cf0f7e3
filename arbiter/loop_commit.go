package arbiter

import (
	"errors"
	"fmt"
	"time"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// writeAt returns when the next write is due, monotonic ns, 0 for none.
func (l *Loop) writeAt() int64 {
	switch {
	case l.failing():
		return l.trouble.at
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

// write commits and publishes what is pending, if it is time to. While the
// store fails it publishes from memory. The error is one that no further try
// would change.
func (l *Loop) write() error {
	if l.failing() {
		l.tellPending()
		if int64(l.cfg.Clock.Mono()) < l.trouble.at {
			return nil
		}
		if err := l.retry(); err != nil || l.failing() {
			return err
		}
	}
	if !l.pending.changes() {
		if !l.pending.effects.empty() {
			l.publish(&part{effects: l.pending.effects}, false)
			l.pending.effects = effects{}
		}
		return nil
	}
	if !l.limiter.AllowN(time.Unix(0, int64(l.cfg.Clock.Mono())), 1) {
		return nil
	}
	return l.writeParts(l.pending.split())
}

// writeParts commits parts in order and publishes each when it is durable. If
// one fails, readers are told of that and the rest from memory. The error is
// one that no further try would change; then nothing more is told.
func (l *Loop) writeParts(parts []part) error {
	for i := range parts {
		p := &parts[i]
		err := l.prepare(p)
		if err == nil {
			err = l.commitReserving(&p.batch)
		}
		if err != nil {
			if err := l.failed(err); err != nil {
				return err
			}
			if p.numbered {
				l.trouble.batch = &p.batch
			}
			for ; i < len(parts); i++ {
				l.tell(&parts[i])
			}
			return nil
		}
		l.publish(p, false)
		l.goesOn() // many parts on a slow disk are progress too
	}
	return nil
}

// prepare numbers a part that is to be written before it is told.
func (l *Loop) prepare(p *part) error {
	events := p.batch.Events
	if uint64(len(events)) > l.numbers.alloc.Left() {
		if err := l.reserve(len(events)); err != nil {
			return err
		}
	}
	first, err := l.numbers.alloc.Take(len(events))
	if err != nil {
		return err
	}
	l.place(events, first)
	l.complete(p)
	return nil
}

// complete gives a numbered part its meta entry. Half a block ahead the next
// is reserved in the same transaction, so that reserving costs no sync of its
// own.
func (l *Loop) complete(p *part) {
	reserved := l.numbers.alloc.Limit()
	if l.numbers.alloc.Left() < timestamps.Block/2 {
		if more, ok := l.numbers.alloc.Reservation(timestamps.Block); ok {
			reserved = more
		}
	}
	if n := len(p.batch.Events); n > 0 {
		l.numbers.last = p.batch.Events[n-1].Position.Seq
	}
	p.batch.Meta = l.meta(reserved)
	p.numbered = true
}

// commitReserving commits a batch whose meta entry reserves numbers.
func (l *Loop) commitReserving(b *store.Batch) error {
	if err := l.commit(b); err != nil {
		return err
	}
	l.numbers.alloc.Extend(b.Meta.Reserved)
	return nil
}

func (l *Loop) commit(b *store.Batch) error {
	began := l.cfg.Clock.Mono()
	err := l.cfg.Store.Commit(b)
	l.cfg.Observer.Committed(l.cfg.Clock.Mono()-began, len(b.Events), err)
	return err
}

// publish shows readers a part: what is durable, or volatile what is not yet.
func (l *Loop) publish(p *part, volatile bool) {
	l.view.apply(p, func(events []store.Event) timestamps.Position { return l.feed.append(events, volatile) })
	if _, told := l.feed.count(); len(p.batch.Events) > 0 {
		l.live.told(told)
	}
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
	if l.failing() {
		l.tellPending()
		if err := l.catchUp(); err != nil {
			return err
		}
	}
	if !l.failing() && l.pending.changes() {
		if err := l.writeParts(l.pending.split()); err != nil {
			return err
		}
	}
	if l.failing() {
		return fmt.Errorf("state could not be written before the end, the next start finds the rest out again: %w", l.health.storeError())
	}
	if err := l.write(); err != nil { // what needed no writing
		return errors.Join(err, l.abandon())
	}
	return l.giveBack()
}

// abandon ends a loop whose inputs can't be trusted: what they led to is not
// written. Unless a write is in doubt, the unused numbers are given back.
func (l *Loop) abandon() error {
	if l.failing() {
		return nil
	}
	return l.giveBack()
}

// giveBack notes that the numbers after those used are free (rule D2).
func (l *Loop) giveBack() error {
	next := l.numbers.alloc.Next()
	meta := l.meta(next - 1)
	meta.Next = next
	if err := l.cfg.Store.Commit(&store.Batch{Meta: meta}); err != nil {
		return fmt.Errorf("state: last write: %w", err)
	}
	return nil
}
