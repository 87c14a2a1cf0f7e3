// Package sysclock is the machine's own clock in the form that the rest of
// plegd takes it: the agent reads the time of day nowhere else. Only a program
// that uses package store by itself and gives it no clock gets time.Now, for
// the names of damaged files.
package sysclock

import (
	"time"

	"github.com/plegd/plegd/timestamps"
)

// New returns the machine's clock. Its monotonic time counts from this call
// and does not advance while the machine is suspended.
func New() timestamps.Clock {
	start := time.Now()
	return timestamps.Clock{
		Wall: time.Now,
		Mono: func() time.Duration { return time.Since(start) },
		NewTimer: func(d time.Duration) timestamps.Timer {
			t := time.NewTimer(d)
			return timestamps.Timer{C: t.C, Stop: t.Stop}
		},
	}
}
