// Package retry spaces tries without an end. It draws nothing at random and has no
// clock, but for Sleep: both are its callers' to inject.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// jitter is by how much a delay is moved, so that what failed together, on one
// node or on many, is not tried together again.
const jitter = 0.2

// Delays returns delays that double from first to most, without jitter, and
// never give up.
func Delays(first, most time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(first),
		backoff.WithMultiplier(2),
		backoff.WithMaxInterval(most),
		backoff.WithRandomizationFactor(0),
		backoff.WithMaxElapsedTime(0),
	)
}

// Jittered moves a delay by up to a fifth each way; r is from 0 to 1.
func Jittered(d time.Duration, r float64) time.Duration {
	return time.Duration(float64(d) * (1 - jitter + 2*jitter*min(max(r, 0), 1)))
}

// Sleep sleeps until ctx ends, whose error it returns then, for so long at most. It is
// for those whose clock is the system's.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
