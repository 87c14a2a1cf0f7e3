package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// signalGrace is how long after the first signal others count as the same
// request: a terminal's Ctrl-C reaches the whole process group, and a wrapper
// such as timeout or a container's init forwards it once more.
const signalGrace = 500 * time.Millisecond

// stopOnSignal returns a context that ends with the first SIGTERM, SIGINT or
// SIGHUP; the last is what a terminal that goes away sends. One that comes
// signalGrace later ends the process at once. A SIGHUP that the process was
// started to ignore, as under nohup, stays ignored. stop releases what this
// needs, when the command is done.
func stopOnSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	got := make(chan os.Signal, 1) // what comes while it is full is the same request
	signal.Notify(got, signals...)
	released, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-got:
		case <-released:
			return
		}
		cancel()
		select {
		case <-time.After(signalGrace):
			signal.Stop(got) // from now on they do what they do by default
		case <-released:
			// The process ends with its own code, also when the same request
			// comes once more in its last moment.
		}
	}()
	return ctx, func() {
		cancel()
		close(released)
		<-done
	}
}

// stopTimeout: the agent promises to end within 3 s in any state. A runtime
// that hangs is given up after one; what takes longer than this is a disk that
// doesn't answer, or a machine that has no time for the agent.
const stopTimeout = 2500 * time.Millisecond

// stopInTime ends the process stopTimeout after ctx has ended, unless ended is
// called before. What was published is durable; what wasn't is found out again
// by the next start, as after a crash. rest says what is waited for then, and
// with which code the process is to end.
func stopInTime(ctx context.Context, log *slog.Logger, rest func() (waits string, code int)) (ended func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(stopTimeout)
		defer timer.Stop()
		select {
		case <-done:
			return
		case <-timer.C:
		}
		waits, code := rest()
		if code == exitOK {
			log.Warn("stop takes too long, ending without what is left; all is written", "after", stopTimeout, "waits_for", waits)
		} else {
			log.Error("stop takes too long, ending as in a crash; what is new may not be written", "after", stopTimeout, "waits_for", waits)
		}
		time.Sleep(lastWords)
		os.Exit(code)
	})
	return func() {
		stop()
		close(done)
	}
}
