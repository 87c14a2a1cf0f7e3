package simruntime

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
)

// lane is the way from a change to the event queue, on which rules drop,
// repeat, hold and change events.
type lane struct {
	hub *hub

	mu      sync.Mutex
	held    []*parcel
	seq     uint64
	timer   *time.Timer // for the next delayed parcel; its function never blocks
	dropped uint64
}

// parcel is an event under way.
type parcel struct {
	ev    *Event
	seq   uint64
	delay time.Duration
	due   time.Time   // set once delayed
	hold  int         // number of later events it lets pass
	hang  *RuleHandle // held until this rule is removed
}

// send puts an event on its way. The ticket is 0 if nothing of it went out at
// once.
func (l *lane) send(ev *Event, acts []*act) (ticket uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	parcels := []parcel{{ev: ev}}
	for _, a := range acts {
		parcels = l.apply(a, parcels)
	}
	for i := range parcels {
		p := &parcels[i]
		l.seq++
		p.seq = l.seq
		switch {
		case p.hang != nil && p.hang.holds():
			l.held = append(l.held, p)
		case p.delay > 0:
			p.due = time.Now().Add(p.delay)
			l.held = append(l.held, p)
			l.arm()
		case p.hold > 0:
			l.held = append(l.held, p)
		default:
			ticket = l.pass(p)
		}
	}
	return ticket
}

// apply lets one rule act on an event and what other rules made of it. With
// Duplicate the rule acts on the copies only: the original goes on untouched,
// so that a copy may come late or changed.
func (l *lane) apply(a *act, in []parcel) []parcel {
	var out []parcel
	for _, p := range in {
		if a.rule.Drop {
			l.dropped++
			continue
		}
		copies := 1
		if a.rule.Duplicate > 0 {
			out = append(out, p)
			copies = a.rule.Duplicate
		}
		for range copies {
			c := p
			c.delay += a.rule.Delay
			c.hold += a.rule.Hold
			if a.rule.Hang {
				c.hang = a.handle
			}
			if a.rule.changes() {
				c.ev = proto.CloneOf(c.ev)
				a.rule.edit(c.ev)
			}
			out = append(out, c)
		}
	}
	return out
}

// pass publishes an event and then those that only waited for it to overtake
// them.
func (l *lane) pass(p *parcel) (ticket uint64) {
	ticket = l.hub.publish(p.ev)
	var free []*parcel
	l.held = slices.DeleteFunc(l.held, func(h *parcel) bool {
		if h.hold == 0 || h.hang != nil || !h.due.IsZero() {
			return false
		}
		if h.hold--; h.hold > 0 {
			return false
		}
		free = append(free, h)
		return true
	})
	for _, h := range free {
		ticket = l.hub.publish(h.ev)
	}
	return ticket
}

// arm sets the timer for the next delayed parcel.
func (l *lane) arm() {
	var next time.Time
	for _, p := range l.held {
		if !p.due.IsZero() && (next.IsZero() || p.due.Before(next)) {
			next = p.due
		}
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	if next.IsZero() {
		return
	}
	l.timer = time.AfterFunc(time.Until(next), func() {
		l.release(func(p *parcel) bool { return !p.due.IsZero() && !p.due.After(time.Now()) })
	})
}

// release sends the parcels that are picked, delayed ones by their due time and
// otherwise in the order in which they came.
func (l *lane) release(pick func(*parcel) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var free []*parcel
	l.held = slices.DeleteFunc(l.held, func(p *parcel) bool {
		if !pick(p) {
			return false
		}
		free = append(free, p)
		return true
	})
	slices.SortFunc(free, func(a, b *parcel) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.seq, b.seq))
	})
	for _, p := range free {
		l.pass(p)
	}
	l.arm()
}

// reset loses everything that is held, as the end of the runtime does.
func (l *lane) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = nil
	l.arm()
}

func (l *lane) snapshot() (dropped uint64, held int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped, len(l.held)
}
