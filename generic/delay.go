package generic

import (
	"time"

	"github.com/cenkalti/backoff/v4"
)

const (
	// retryInitial is the delay before the second try of a question. The first
	// failure is often a container that is being created or removed just then.
	retryInitial = 200 * time.Millisecond
	// retryMax is the longest delay. An entity that can't be inspected for
	// hours costs the runtime twelve calls an hour (moby/moby#44300).
	retryMax = 5 * time.Minute
	// retryJitter spreads the retries of many entities that failed together.
	retryJitter = 0.2
)

// delays holds the delay before each attempt, without jitter. The core keeps
// the attempts, and persists them; here they become time.
var delays = func() []time.Duration {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(retryInitial),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(retryMax),
		backoff.WithRandomizationFactor(0), // the jitter is injectable, this isn't
		backoff.WithMaxElapsedTime(0),      // never gives up
	)
	all := []time.Duration{0}
	for all[len(all)-1] < retryMax {
		all = append(all, b.NextBackOff())
	}
	return all
}()

// delay returns how long to wait before this attempt; 0 is the first and waits
// not at all. r is from 0 to 1 and moves the delay by up to a fifth each way.
func delay(attempt int, r float64) time.Duration {
	d := delays[min(max(attempt, 0), len(delays)-1)]
	return time.Duration(float64(d) * (1 - retryJitter + 2*retryJitter*min(max(r, 0), 1)))
}
