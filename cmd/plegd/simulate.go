package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
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
	ctrs     int
	profile  string
	noEvents bool
	faults   faults
	items    []string
	file     string
	script   *script
	history  string // of a comparison: the file for all that happens, "" for none
}

// The profiles that --profile takes.
const (
	defaultProfile = "containerd-2.4"
	crioProfile    = "cri-o"
)

var profiles = map[string]simruntime.Profile{
	defaultProfile:    simruntime.Containerd24,
	"containerd-1.7":  simruntime.Containerd17,
	"containerd-1.6":  simruntime.Containerd16,
	crioProfile:       simruntime.CRIO,
	"cri-o-no-events": simruntime.CRIONoEvents,
}

func profileNames() []string { return slices.Sorted(maps.Keys(profiles)) }

// shareAtOnce is the share of containers that exit at once on a CRI-O, whose
// habits show there.
const shareAtOnce = 0.1

// newSimulate makes `plegd simulate`.
func newSimulate(std streams) *cobra.Command {
	o := simulateOptions{pods: simruntime.DefaultPods, rate: simruntime.DefaultRate, profile: defaultProfile, faults: defaultFaults}
	cmd := &cobra.Command{
		Use:   "simulate --socket PATH",
		Short: "Serve a simulated CRI runtime with pods that come and go",
		Long: "simulate serves a simulated CRI runtime that behaves like containerd 2.x, or another, with\n" +
			"pods that start, exit, restart and vanish, until it is interrupted. It is for trying plegd\n" +
			"out and for tests. The same seed makes the same pods and faults.",
		Example: "  plegd simulate --socket /tmp/sim.sock --profile cri-o --restart-every 1m\n" +
			"  plegd simulate --socket /tmp/sim.sock --pods 500 --containers 40\n" +
			"  plegd simulate --socket /tmp/sim.sock --fault method=StreamContainers,code=Internal,from=30s,for=10s \\\n" +
			"    --fault do=freeze,at=1m,for=5s",
		Args: noArgs,
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
	f.StringVar(&o.socket, "socket", "", "the unix socket to serve on, /path or unix:///path (required)")
	seedFlag(f, &o.seed, "seed", "decides pods and faults")
	countFlag(f, &o.pods, "pods", "pods at a time")
	rateFlag(f, &o.rate, "rate", "transitions a second")
	f.Var(&parsed[int]{&o.ctrs, "count", parseCount, showCount}, "containers",
		"containers of each pod; the first pods are then there from the start, without events")
	choiceFlag(cmd, &o.profile, "profile",
		"the `runtime` that is imitated: "+strings.Join(profileNames(), ", "), profileNames()...)
	f.BoolVar(&o.noEvents, "no-events", false, "have no event stream, as containerd 1.6")
	o.faults.addTo(f)
	f.StringArrayVar(&o.items, "fault", nil, "`item`, a fault or command such as method=StreamContainers,code=Internal; may be repeated")
	f.StringVar(&o.file, "script", "", "`file` with one such item a line")
	f.StringVar(&o.history, "history", "", "`file` that all that really happens is written to, for plegd compare")
	_ = f.MarkHidden("history") // it fails for a flag that doesn't exist only
	return cmd
}

// showCount shows no number that isn't given.
func showCount(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// complete makes the path absolute and refuses what contradicts itself.
func (o *simulateOptions) complete(f *pflag.FlagSet) error {
	if o.socket == "" {
		return usagef("--socket is required: the path of the unix socket to serve on")
	}
	// As --runtime-endpoint takes it, and as the line that is printed has it.
	path, err := socketPath(o.socket)
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return usagef("--socket %q: %v", o.socket, err)
	}
	if o.socket, err = socketPath(path); err != nil { // it has become longer
		return err
	}
	if o.noEvents && f.Changed("profile") {
		return usagef("--no-events: can't be given with --profile; choose containerd-1.6 or cri-o-no-events")
	}
	if f.Changed("script") && o.file == "" {
		return usagef("--script is empty; give the path of a file")
	}
	if err := o.faults.validate(f); err != nil {
		return err
	}
	o.script, err = newScript(o.items, o.file, o.seed)
	return err
}

// simulate serves until ctx ends.
func simulate(ctx context.Context, o simulateOptions, std streams) error {
	profile := profiles[o.profile]
	profile.NoEvents = profile.NoEvents || o.noEvents
	rt, err := simruntime.New(simruntime.Config{Seed: o.seed, Profile: profile, Wall: o.script.clock.Now})
	if err != nil {
		return err
	}
	if err := o.faults.rules(rt); err != nil {
		return err
	}
	ends, err := o.script.begin(rt)
	if err != nil {
		return err
	}
	cfg := simruntime.WorkloadConfig{Seed: o.seed, Pods: o.pods, Rate: o.rate, Containers: o.ctrs}
	if strings.HasPrefix(o.profile, crioProfile) {
		cfg.ExitAtOnce = shareAtOnce
	}
	load, err := simruntime.NewWorkload(rt, cfg)
	if err != nil {
		return err
	}
	if cfg.Containers > 0 { // there from the start, as far as anybody can see
		if err := load.Fill(); err != nil {
			return err
		}
	}
	lis, err := simruntime.Listen(o.socket)
	if err != nil {
		return fmt.Errorf("--%w", err) // it names the socket
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return rt.Serve(ctx, lis) })
	group.Go(func() error { return load.Run(ctx) })
	group.Go(func() error { return o.faults.run(ctx, rt) })
	group.Go(func() error { return o.script.run(ctx, rt, ends) })
	group.Go(func() error { return writeHistory(ctx, rt, o.history) })
	// The socket accepts by now, so whoever waits for this line may connect.
	_, _ = fmt.Fprintln(std.out, o.greeting())
	return group.Wait()
}

// greeting says what is served.
func (o *simulateOptions) greeting() string {
	pods := fmt.Sprintf("%d pods", o.pods)
	if o.ctrs > 0 {
		pods += fmt.Sprintf(" of %d containers", o.ctrs)
	}
	runtime := "runtime"
	if o.profile != defaultProfile {
		runtime = o.profile + " runtime"
	}
	faults := o.faults.list()
	if n := len(o.script.items); n > 0 {
		faults = append(faults, fmt.Sprintf("%d scripted", n))
	}
	listed := strings.Join(faults, ", ")
	if listed == "" {
		listed = "none"
	}
	return fmt.Sprintf("simulated %s on unix://%s: %s, %s transitions a second, seed %d, faults: %s",
		runtime, o.socket, pods, showFloat(o.rate), o.seed, listed)
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

// list lists the faults that are switched on.
func (f faults) list() (on []string) {
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
	return on
}
