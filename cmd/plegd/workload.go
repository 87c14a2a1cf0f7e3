package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/compare/load"
	"github.com/plegd/plegd/internal/compare/trial"
)

// workloadOptions are the flags of commands that can make pods come and go, for
// something to happen.
type workloadOptions struct {
	text    string
	spec    *load.Spec // nil: the node's own load
	command []string   // of the containers
	faults  []string   // of the simulated runtime
}

// workload is what makes pods come and go.
type workload interface {
	trial.Load
	// Failed says in words which calls of the load failed, "" if none did.
	Failed() string
	Close() error
}

// addTo adds the flags.
func (w *workloadOptions) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.text, "workload", "", "make pods come and go: `spec` such as seed=1,pods=20,rate=5 on a simulated runtime, with image=IMAGE on a real one")
	f.StringArrayVar(&w.faults, "fault", nil, "`item` as of plegd simulate: a fault of the simulated runtime; may be repeated")
}

// complete reads the flags, and the command after --.
func (w *workloadOptions) complete(cmd *cobra.Command, args []string) error {
	if cmd.Flags().Changed("workload") {
		spec, err := load.ParseSpec(w.text, profileNames())
		if err != nil {
			return usagef("--workload: %v", err)
		}
		w.spec = &spec
	}
	if n := cmd.ArgsLenAtDash(); n != 0 {
		if err := noArgs(cmd, args); err != nil {
			return err
		}
	}
	if w.command = args; len(args) > 0 && (w.spec == nil || w.spec.Image == "") {
		return usagef("-- %.80q: a command is of containers of a real runtime; give --workload image=IMAGE too", strings.Join(args, " "))
	}
	if len(w.faults) > 0 && !w.simulated() {
		return usagef("--fault: is of the simulated runtime; give --workload without image=")
	}
	for _, item := range w.faults {
		if _, err := parseScriptItem(item, 0); err != nil {
			return usagef("--fault %q: %v", item, err)
		}
	}
	if w.simulated() && cmd.Flags().Changed("runtime-endpoint") {
		return usagef("--workload %.80q: without image= it is on a simulated runtime; leave out --runtime-endpoint, or give image=IMAGE", w.text)
	}
	return nil
}

// simulated reports whether a simulated runtime is wanted.
func (w *workloadOptions) simulated() bool { return w.spec != nil && w.spec.Image == "" }

// start starts a simulated runtime, or prepares pods on the one at an endpoint, or on
// the usual socket that answers, and returns where that runtime listens. The workload is
// nil where none is wanted; tell is told of what it has to clean up.
func (w *workloadOptions) start(ctx context.Context, endpoint string, tell func(string)) (workload, string, error) {
	if w.simulated() {
		var faults []string
		for _, item := range w.faults {
			faults = append(faults, "--fault", item)
		}
		sim, err := load.Simulate(ctx, *w.spec, trial.Self("compare", comparePart, partSimulate), faults)
		if err != nil {
			return nil, "", err
		}
		return sim, sim.Socket(), nil
	}
	if endpoint == "" {
		var err error
		if endpoint, err = anyRuntime(ctx); err != nil {
			return nil, "", err
		}
	}
	if w.spec == nil {
		return nil, endpoint, nil
	}
	pods, err := load.NewPods(ctx, endpoint, *w.spec, w.command, tell)
	if err != nil {
		return nil, "", err
	}
	return pods, endpoint, nil
}

// end removes what a workload has made; nil has made nothing.
func end(w workload) error {
	if w == nil {
		return nil
	}
	return errors.Join(w.Remove(), w.Close())
}
