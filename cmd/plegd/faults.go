package main

import (
	"context"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	"github.com/plegd/plegd/internal/retry"
	"github.com/plegd/plegd/internal/simruntime"
)

// faults are what `plegd simulate` can be told to do wrong. Zero is off.
type faults struct {
	drop, duplicate    float64 // shares of events
	delay              time.Duration
	delayShare         float64
	eofEvery           time.Duration
	hangEvery, hangFor time.Duration
	restartEvery       time.Duration
	restartFor         time.Duration
}

// defaultFaults are none; the rest is how bad a fault is once it is asked for.
var defaultFaults = faults{delayShare: 1, hangFor: 5 * time.Second, restartFor: 2 * time.Second}

// addTo adds the flags.
func (f *faults) addTo(fs *pflag.FlagSet) {
	shareFlag(fs, &f.drop, "drop", "share of events that are lost")
	shareFlag(fs, &f.duplicate, "duplicate", "share of events that are told twice")
	durationFlag(fs, &f.delay, "delay", "how late delayed events are")
	shareFlag(fs, &f.delayShare, "delay-share", "share of events that --delay concerns")
	durationFlag(fs, &f.eofEvery, "eof-every", "end the event streams, without an error, so often")
	durationFlag(fs, &f.hangEvery, "hang-every", "answer no call at all, so often")
	durationFlag(fs, &f.hangFor, "hang-for", "how long --hang-every lasts")
	durationFlag(fs, &f.restartEvery, "restart-every", "restart the runtime, so often")
	durationFlag(fs, &f.restartFor, "restart-for", "how long the runtime is down in a restart")
}

// validate refuses what contradicts itself, and what would have no effect.
func (f *faults) validate(given *pflag.FlagSet) error {
	for _, needs := range [][2]string{{"delay-share", "delay"}, {"hang-for", "hang-every"}, {"restart-for", "restart-every"}} {
		if given.Changed(needs[0]) && !given.Changed(needs[1]) {
			return usagef("--%s: has no effect without --%s", needs[0], needs[1])
		}
	}
	switch {
	case f.hangEvery > 0 && f.hangFor >= f.hangEvery:
		return usagef("--hang-for %v: must be shorter than --hang-every %v", f.hangFor, f.hangEvery)
	case f.restartEvery > 0 && f.restartFor >= f.restartEvery:
		return usagef("--restart-for %v: must be shorter than --restart-every %v", f.restartFor, f.restartEvery)
	}
	return nil
}

// rules puts the faults of single events into effect.
func (f *faults) rules(rt *simruntime.Runtime) error {
	var rules []simruntime.Rule
	if f.drop > 0 {
		rules = append(rules, simruntime.Rule{Method: simruntime.MethodEvent, Probability: f.drop, Drop: true})
	}
	if f.duplicate > 0 {
		rules = append(rules, simruntime.Rule{Method: simruntime.MethodEvent, Probability: f.duplicate, Duplicate: 1})
	}
	if f.delay > 0 && f.delayShare > 0 {
		rules = append(rules, simruntime.Rule{Method: simruntime.MethodEvent, Probability: f.delayShare, Delay: f.delay})
	}
	for _, r := range rules {
		if _, err := rt.AddRule(r); err != nil {
			return err
		}
	}
	return nil
}

// run makes the faults of the whole runtime happen until ctx ends.
func (f *faults) run(ctx context.Context, rt *simruntime.Runtime) error {
	group, ctx := errgroup.WithContext(ctx)
	if f.eofEvery > 0 {
		group.Go(func() error {
			every(ctx, f.eofEvery, func() { rt.EndStreams(codes.OK) })
			return nil
		})
	}
	if f.hangEvery > 0 {
		group.Go(func() error {
			every(ctx, f.hangEvery, func() { hang(ctx, rt, f.hangFor) })
			return nil
		})
	}
	if f.restartEvery > 0 {
		group.Go(func() error {
			every(ctx, f.restartEvery, func() {
				rt.Down()
				_ = retry.Sleep(ctx, f.restartFor)
				rt.Up()
			})
			return nil
		})
	}
	return group.Wait()
}

// hang lets every call hang for a while, whatever its deadline says.
func hang(ctx context.Context, rt *simruntime.Runtime, d time.Duration) {
	h, err := rt.AddRule(simruntime.Rule{Hang: true, IgnoreCancel: true})
	if err != nil {
		return // the rule is a constant, and valid
	}
	defer h.Remove()
	_ = retry.Sleep(ctx, d)
}
