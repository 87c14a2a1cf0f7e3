package generic

import (
	"time"

	"github.com/plegd/plegd/arbiter"
)

// PeriodState names what the adaptive period is doing. The names are used in
// metrics and status.
type PeriodState string

// The states of the adaptive period.
const (
	// Polling: the stream is not up, so lists are all there is. Base period.
	Polling PeriodState = "polling"
	// Proving: the stream is up but has not earned trust yet. Base period.
	Proving PeriodState = "proving"
	// Stretching: each clean relist doubles the period.
	Stretching PeriodState = "stretching"
	// Stretched: the period is the longest.
	Stretched PeriodState = "stretched"
)

// maxStrikes bounds how long a stream that missed changes must behave before
// the period stretches again: 2^6 relists, about a minute at 1 s. More would
// punish a runtime for a bad hour that is long over.
const maxStrikes = 6

// PeriodStatus is what the adaptive period shows of itself.
type PeriodStatus struct {
	State   PeriodState
	Period  time.Duration // in force, before jitter
	Clean   int           // clean relists in a row
	Needed  int           // clean relists in a row before the period stretches
	Strikes int           // relists with misses that are not forgiven yet, at most 6
}

// period is the adaptive period: a state machine without a clock.
//
//	          stream up             Clean = Needed            at the longest
//	polling ───────────► proving ──────────────► stretching ───────────────► stretched
//	   ▲                   ▲  │ miss: strike          │ miss: strike              │
//	   │                   └──┴───────◄───────────────┴────── shrink, failed list ┤
//	   └────────────────── stream down, from everywhere ◄─────────────────────────┘
//
// A clean relist counts once in a period: what else has the runtime listed, such as
// readers that ask for it, finds misses as well, but earns no trust in seconds that
// time has not tried.
//
// Needed is 2^strikes. A relist with misses adds a strike, a clean relist at
// the longest takes one away, another version of the runtime all: trust that
// was lost by missing is earned back by a longer clean run, not by waiting. A stream that ends, an overflow or a
// failed list throw the run away but are no strikes: they say nothing about
// whether an open stream can be relied on.
type period struct {
	base, longest time.Duration
	current       time.Duration
	up            bool
	clean         int
	strikes       int
	next          time.Duration // monotonic: from when on a clean relist counts
}

func newPeriod(base, longest time.Duration) period {
	return period{base: base, longest: longest, current: base}
}

// stream says that the event stream has opened or ended.
func (p *period) stream(up bool) {
	p.up = up
	p.shrink()
}

// shrink goes back to the base period at once.
func (p *period) shrink() { p.current, p.clean, p.next = p.base, 0, 0 }

// renew forgets what was held against the stream: another runtime sends it.
func (p *period) renew() {
	p.strikes = 0
	p.shrink()
}

// judged takes the verdict on a completed full list. One that is neither clean
// nor missed anything (changes still within their time) moves nothing, nor does one
// that comes too soon after the last that counted.
func (p *period) judged(v arbiter.Relist, now time.Duration) {
	switch {
	case v.Misses > 0:
		p.shrink()
		p.strikes = min(p.strikes+1, maxStrikes)
	case v.Clean && p.up && now >= p.next:
		p.clean++
		// Jitter has the next one come sooner by a tenth at most.
		defer func() { p.next = now + p.current - p.current/jitterPart }()
		switch {
		case p.clean < p.needed():
		case p.current == p.longest:
			p.strikes = max(p.strikes-1, 0)
		case p.current > p.longest/2:
			p.current = p.longest
		default:
			p.current *= 2
		}
	}
}

// update replaces base and longest. A period at the base stays there.
func (p *period) update(base, longest time.Duration) {
	if p.current == p.base {
		p.current = base
	}
	p.base, p.longest = base, longest
	p.current = min(max(p.current, base), longest)
}

func (p *period) needed() int { return 1 << p.strikes }

func (p *period) status() PeriodStatus {
	s := PeriodStatus{State: Stretching, Period: p.current, Clean: p.clean, Needed: p.needed(), Strikes: p.strikes}
	switch {
	case !p.up:
		s.State = Polling
	case p.clean < s.Needed && p.current == p.base:
		s.State = Proving
	case p.current == p.longest:
		s.State = Stretched
	}
	return s
}

// jitterPart is by how much a stretched period may be shortened, so that the
// agents of nodes that were started together don't relist together for ever.
const jitterPart = 10 // a tenth

// jittered shortens a stretched period by up to a tenth; r is from 0 to 1. The
// base period is a promise and stays, and no period grows beyond the longest.
func jittered(p, base time.Duration, r float64) time.Duration {
	if p <= base {
		return p
	}
	return max(base, p-time.Duration(float64(p)/jitterPart*min(max(r, 0), 1)))
}
