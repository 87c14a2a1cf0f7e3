package main

import (
	"context"
	"log/slog"
	"os"
	"time"
)

// stopTimeout: the agent promises to end within 3 s in any state. A runtime
// that hangs is given up after one; only a disk that doesn't answer takes
// longer than this.
const stopTimeout = 2500 * time.Millisecond

// watchdog ends the process stopTimeout after ctx has ended, unless ended is
// called before. What was published is durable; what wasn't is found out again
// by the next start, as after a crash.
func watchdog(ctx context.Context, log *slog.Logger) (ended func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(stopTimeout)
		defer timer.Stop()
		select {
		case <-done:
			return
		case <-timer.C:
		}
		log.Error("stop takes too long, ending as in a crash; is the disk of the state hung?", "after", stopTimeout)
		time.Sleep(lastWords)
		os.Exit(exitFailure)
	})
	return func() {
		stop()
		close(done)
	}
}
