package arbiter

import (
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// busyRate is how many inputs a second are many, busyBurst how many may come at
	// once, as when pods end or a node starts, and busyMost after how many more there
	// is no more to remember: a storm is over 64 ms after its end.
	busyRate, busyBurst, busyMost = 1000, 64, 64
)

// pressure is how much has lately been taken in, and is still to be written. Safe
// for concurrent use.
type pressure struct {
	limiter   *rate.Limiter
	unwritten atomic.Int64 // inputs
}

func (p *pressure) init() { p.limiter = rate.NewLimiter(busyRate, busyBurst+busyMost) }

// took notes inputs that were taken in.
func (p *pressure) took(mono time.Duration, inputs int) {
	now := time.Unix(0, int64(mono))
	p.limiter.AllowN(now, min(inputs, int(p.limiter.TokensAt(now))))
	p.unwritten.Add(int64(inputs))
}

// wrote notes that what came of all inputs is written, or can't be for now.
func (p *pressure) wrote() { p.unwritten.Store(0) }

func (p *pressure) high(mono time.Duration) bool {
	return p.unwritten.Load() > busyBurst || p.limiter.TokensAt(time.Unix(0, int64(mono))) < busyMost
}

// Busy reports whether much more than usual is being taken in, over 1,000 inputs a
// second, or written. Readers that can wait should, and leave the processors to the
// loop.
func (l *Loop) Busy() bool { return l.pressure.high(l.cfg.Clock.Mono()) }
