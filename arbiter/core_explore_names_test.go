package arbiter

import (
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// naming gives the ticks and times in a state other names, so that states from
// which the same can happen have the same digest.
//
// A tick of the past is compared with three kinds of others only: with those
// of the future, which are all later; with those of the calls in flight that
// can speak of the same thing, of which it gets one bit each; and with a few
// others of the past, in pairs: a DELETED and an absence with what was known of
// the entity (they stand or count for nothing ever after), the sandboxes of one
// pod and the tombstones by age, which get their rank. So a name says all that
// can matter, and names of what follows depend on names alone. Times are
// compared with bounds of a second and more, while all actions of a run
// together take less; events' times, in order, with the last list's, the
// horizon's and those of lists in flight and tombstones, of which they get one
// bit each. TestExploreSameDigestSameFuture tests all that.
type naming struct {
	w     *smallWorld
	n     *node
	crash bool              // it matters what a crash would leave
	alone bool              // nothing is in flight: after a crash
	first []timestamps.Tick // when sandboxes were first seen
}

// anything is the slot of what may be about any thing.
const anything = -1

// tick is the name of a tick of the past that has to do with a thing.
func (x *naming) tick(t timestamps.Tick, slot int) timestamps.Tick {
	if t == 0 {
		return 0
	}
	name := timestamps.Tick(1)
	if x.alone {
		return name
	}
	later := func(r timestamps.Tick) {
		name <<= 1
		if t > r {
			name++
		}
	}
	for i := range x.n.calls {
		f := &x.n.calls[i]
		if slot != anything && f.about&(1<<slot) == 0 {
			continue
		}
		if slot == anything || f.key.Kind == ActStatus || x.w.things[slot].kind == store.KindSandbox {
			later(f.first.Sent.Tick)
			if f.half {
				later(f.first.Answered.Tick)
			}
		}
		if f.half && (slot == anything || x.w.things[slot].kind == store.KindContainer) {
			later(f.second.Sent.Tick)
		}
	}
	return name
}

// from is the name of the sending of a call of the past: what can still be found
// before it are answers on their way, and only a list's first half is answered
// and not yet taken in.
func (x *naming) from(t timestamps.Tick, slot int) timestamps.Tick {
	if t == 0 {
		return 0
	}
	name := timestamps.Tick(1)
	for i := range x.n.calls {
		if f := &x.n.calls[i]; f.half && !x.alone && f.about&(1<<slot) != 0 && x.w.things[slot].kind == store.KindSandbox {
			name <<= 1
			if t > f.first.Answered.Tick {
				name++
			}
		}
	}
	return name
}

// fullSent is the name of a tick that is compared with the sending of a full list.
func (x *naming) fullSent(t timestamps.Tick) timestamps.Tick {
	if t == 0 {
		return 0
	}
	for i := range x.n.calls {
		if f := &x.n.calls[i]; f.key.Kind == ActList && f.first.Sent.Tick > t {
			return 2
		}
	}
	return 1
}

func some[T comparable](t T) uint64 {
	var zero T
	if t == zero {
		return 0
	}
	return 1
}

// age is how long ago it was, as far as a bound can tell; 0 never.
func age(now, then int64) int64 {
	if then == 0 {
		return 0
	}
	return 1 + min(now-then, 3600*second)/second
}

// hours is how far a wall time is from the present one.
func hours(now, wall int64) int64 {
	if wall == 0 {
		return 0
	}
	const hour = 3600 * second
	return (wall - now + 1<<10*hour + hour/2) / hour
}
