package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/plegd/plegd/internal/simruntime"
)

// simulateOptions are the flags of `plegd simulate`.
type simulateOptions struct {
	socket   string
	seed     uint64
	pods     int
	rate     float64
	noEvents bool
	faults   faults
}

// newSimulate makes `plegd simulate`.
func newSimulate(std streams) *cobra.Command {
	o := simulateOptions{pods: simruntime.DefaultPods, rate: simruntime.DefaultRate, faults: defaultFaults}
	cmd := &cobra.Command{
		Use:   "simulate --socket PATH",
		Short: "Serve a simulated CRI runtime with pods that come and go",
		Long: "simulate serves a simulated CRI runtime that behaves like containerd 2.x, with pods that\n" +
			"start, exit, restart and vanish, until it is interrupted. It is for trying plegd out and\n" +
			"for tests. The same seed makes the same pods and faults.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd.Flags()); err != nil {
				return err
			}
			ctx, stop := stopOnSignal(cmd.Context())
			defer stop()
			return simulate(ctx, o, std)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.socket, "socket", "", "path of the unix socket to serve on (required)")
	seedFlag(f, &o.seed, "seed", "decides pods and faults")
	countFlag(f, &o.pods, "pods", "pods at a time")
	rateFlag(f, &o.rate, "rate", "transitions a second")
	f.BoolVar(&o.noEvents, "no-events", false, "have no event stream, as containerd 1.6")
	o.faults.addTo(f)
	return cmd
}

// complete makes the path absolute and refuses what contradicts itself.
func (o *simulateOptions) complete(f *pflag.FlagSet) error {
	if o.socket == "" {
		return usagef("--socket is required: the path of the unix socket to serve on")
	}
	// As --runtime-endpoint takes it, and as the line that is printed has it.
	path, err := filepath.Abs(strings.TrimPrefix(o.socket, "unix://"))
	if err != nil {
		return usagef("--socket %q: %v", o.socket, err)
	}
	o.socket = path
	if err := checkSocketPath("socket", o.socket); err != nil {
		return err
	}
	return o.faults.validate(f)
}

// simulate serves until ctx ends.
func simulate(ctx context.Context, o simulateOptions, std streams) error {
	profile := simruntime.Containerd24
	profile.NoEvents = o.noEvents
	rt, err := simruntime.New(simruntime.Config{Seed: o.seed, Profile: profile})
	if err != nil {
		return err
	}
	if err := o.faults.rules(rt); err != nil {
		return err
	}
	load, err := simruntime.NewWorkload(rt, simruntime.WorkloadConfig{Seed: o.seed, Pods: o.pods, Rate: o.rate})
	if err != nil {
		return err
	}
	lis, err := simruntime.Listen(o.socket)
	if err != nil {
		return fmt.Errorf("--%w", err) // it names the socket
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return rt.Serve(ctx, lis) })
	group.Go(func() error { return load.Run(ctx) })
	group.Go(func() error { return o.faults.run(ctx, rt) })
	// The socket accepts by now, so whoever waits for this line may connect.
	_, _ = fmt.Fprintf(std.out, "simulated runtime on unix://%s: %d pods, %s transitions a second, seed %d, faults: %s\n",
		o.socket, o.pods, showFloat(o.rate), o.seed, o.faults)
	return group.Wait()
}

// every calls f once in each period until ctx ends.
func every(ctx context.Context, period time.Duration, f func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}

// sleep waits; it returns early when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// String lists the faults that are switched on.
func (f faults) String() string {
	var on []string
	add := func(used bool, format string, args ...any) {
		if used {
			on = append(on, fmt.Sprintf(format, args...))
		}
	}
	add(f.drop > 0, "drop %s", showFloat(f.drop))
	add(f.duplicate > 0, "duplicate %s", showFloat(f.duplicate))
	add(f.delay > 0, "delay %s by %s", showFloat(f.delayShare), showDuration(f.delay))
	add(f.eofEvery > 0, "EOF every %s", showDuration(f.eofEvery))
	add(f.hangEvery > 0, "hang every %s for %s", showDuration(f.hangEvery), showDuration(f.hangFor))
	add(f.restartEvery > 0, "restart every %s for %s", showDuration(f.restartEvery), showDuration(f.restartFor))
	if len(on) == 0 {
		return "none"
	}
	return strings.Join(on, ", ")
}
