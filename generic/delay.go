package generic

import (
	"time"

	"github.com/plegd/plegd/internal/retry"
)

const (
	// retryInitial is the delay before the second try of a question. The first
	// failure is often a container that is being created or removed just then.
	retryInitial = 200 * time.Millisecond
	// retryMax is the longest delay. An entity that can't be inspected for
	// hours costs the runtime twelve calls an hour (moby/moby#44300).
	retryMax = 5 * time.Minute
)

// delays holds the delay before each attempt, without jitter. The core keeps
// the attempts, and persists them; here they become time.
var delays = func() []time.Duration {
	b := retry.Delays(retryInitial, retryMax)
	all := []time.Duration{0}
	for all[len(all)-1] < retryMax {
		all = append(all, b.NextBackOff())
	}
	return all
}()

// delay returns how long to wait before this attempt; 0 is the first and waits
// not at all. r is from 0 to 1 and moves the delay by up to a fifth each way.
func delay(attempt int, r float64) time.Duration {
	return retry.Jittered(delays[min(max(attempt, 0), len(delays)-1)], r)
}
