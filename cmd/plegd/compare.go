package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/generic"
	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/internal/compare/report"
	"github.com/plegd/plegd/internal/compare/trial"
)

// defaultCompareFor is how long a comparison takes unless it is said.
const defaultCompareFor = time.Minute

// errBroken is wrapped by what compare returns when a threshold is broken.
var errBroken = errors.New("--fail-on")

// compareOptions are the flags of `plegd compare`.
type compareOptions struct {
	endpoint    string
	modeList    string
	modes       []compare.Mode
	length      time.Duration
	transitions int
	late        time.Duration
	rpcTimeout  time.Duration
	workload    workloadOptions
	failOn      string
	thresholds  []compare.Threshold
	json        bool
	html        string
	input       string // a recording, "" for none

	page *pageFile // nil for none
}

// newCompare makes `plegd compare`.
func newCompare(std streams) *cobra.Command {
	o := compareOptions{modeList: compare.DefaultModes, late: compare.DefaultLate, rpcTimeout: generic.DefaultRPCTimeout}
	cmd := &cobra.Command{
		Use:   "compare [flags] [-- COMMAND OF THE WORKLOAD'S CONTAINERS]",
		Short: "Run modes side by side on a runtime, and say which tells what happens best",
		Long: "compare runs modes side by side on one runtime, each in a process of its own, and says for\n" +
			"each how soon it told what happened, what it missed, told late or wrong, for how long its\n" +
			"state was wrong, and what it cost. It needs no agent, and leaves the state of one alone.\n\n" +
			"Modes: generic (relists each second), evented (the event stream alone), hybrid (both),\n" +
			"hinted (the kubelet's way since 1.37); generic=5s for another period.",
		Example: "  plegd compare --for 5m                                  # under the node's own load\n" +
			"  plegd compare --workload seed=1,pods=100,rate=5         # on a simulated runtime\n" +
			"  plegd compare --workload seed=1 --fault method=event,drop,share=0.1 --fail-on 'hybrid:missed>0'\n" +
			"  plegd compare --workload image=busybox:1.37,pods=5 --html report.html -- sleep 3600",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, args, std.getenv); err != nil {
				return err
			}
			ctx, stop := stopOnSignal(cmd.Context())
			defer stop()
			return o.run(ctx, std)
		},
	}
	o.addTo(cmd)
	cmd.AddCommand(newComparePart(std))
	return cmd
}

func (o *compareOptions) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	endpointFlag(f, &o.endpoint, "")
	f.StringVar(&o.modeList, "modes", o.modeList, "`modes` that are compared, separated by commas")
	durationFlag(f, &o.length, "for", "how long to measure (default 1m, or until --transitions)")
	f.Var(&parsed[int]{&o.transitions, "count", parseCount, showCount}, "transitions", "measure until so many happened, at most 1h")
	durationFlag(f, &o.late, "late", "what is told later than this is late")
	durationFlag(f, &o.rpcTimeout, "rpc-timeout", "bound of each call to the runtime")
	o.workload.addTo(cmd)
	f.StringVar(&o.failOn, "fail-on", "", "`thresholds` such as missed>0,hybrid:p99>50ms; exit code 3 if one is true")
	f.StringVar(&o.input, "input", "", "compare on what plegd record has written into this `file`, in virtual time")
	f.BoolVar(&o.json, "json", false, "write the report as JSON")
	f.StringVar(&o.html, "html", "", "write the report as one web page into a `file` too")
}

// complete reads the flags and refuses what contradicts itself.
func (o *compareOptions) complete(cmd *cobra.Command, args []string, getenv func(string) string) (err error) {
	f := cmd.Flags()
	if o.modes, err = compare.ParseModes(o.modeList); err != nil {
		return usagef("--modes %.80q: %v", o.modeList, err)
	}
	if f.Changed("fail-on") {
		if o.thresholds, err = compare.ParseThresholds(o.failOn, o.modes); err != nil {
			return usagef("--fail-on: %v", err)
		}
	}
	if f.Changed("html") && o.html == "" {
		return usagef("--html \"\": must be the name of a file")
	}
	if f.Changed("input") {
		return o.completeInput(cmd, args)
	}
	if err := o.workload.complete(cmd, args); err != nil {
		return err
	}
	_, err = namedEndpoint(f, getenv, &o.endpoint)
	return err
}

// completeInput refuses what a recording has decided already.
func (o *compareOptions) completeInput(cmd *cobra.Command, args []string) error {
	if err := noArgs(cmd, args); err != nil {
		return err
	}
	f := cmd.Flags()
	for _, name := range []string{"runtime-endpoint", "for", "transitions", "workload", "fault"} {
		if f.Changed(name) {
			return usagef("--%s: has no effect with --input, since all of that is in the recording", name)
		}
	}
	if o.input == "" {
		return usagef("--input \"\": must be a file that plegd record has written")
	}
	for _, t := range o.thresholds {
		if t.OfProcess() {
			return usagef("--fail-on %q: has no effect with --input, since the cost of a process is not measured in virtual time", t)
		}
	}
	return nil
}

// run compares and writes the report.
func (o *compareOptions) run(ctx context.Context, std streams) (err error) {
	if o.html != "" { // before a comparison whose report could not be written
		if o.page, err = newPageFile(o.html, o.input); err != nil {
			return err
		}
		defer o.page.drop()
	}
	tell := func(s string) { _, _ = fmt.Fprintln(std.err, "plegd compare:", s) }
	cfg := trial.Config{
		Modes: o.modes, Endpoint: o.endpoint, RPCTimeout: o.rpcTimeout, For: o.length, Transitions: o.transitions, Late: o.late,
		Child: trial.Self("compare", comparePart, partMode), Tell: tell,
	}
	if cfg.For == 0 && cfg.Transitions == 0 {
		cfg.For = defaultCompareFor
	}
	if o.input != "" {
		cfg.Child = trial.Self("compare", comparePart, partReplay)
		r, err := trial.Replay(ctx, cfg, o.input)
		if err != nil {
			return fmt.Errorf("--input: %w", err)
		}
		return o.finish(r, std)
	}
	w, endpoint, err := o.workload.start(ctx, o.endpoint, tell)
	if err != nil {
		return err
	}
	cfg.Endpoint = endpoint
	if w != nil {
		defer func() { err = errors.Join(err, w.Close()) }()
		cfg.Load = w
	}
	r, err := trial.Run(ctx, cfg)
	if r == nil {
		return err
	}
	return errors.Join(err, o.finish(r, std))
}

// finish judges by the thresholds and writes the report.
func (o *compareOptions) finish(r *compare.Report, std streams) error {
	compare.Check(r, o.thresholds)
	return o.write(r, std)
}

// write writes the report in the forms that are wanted.
func (o *compareOptions) write(r *compare.Report, std streams) error {
	if o.page != nil {
		page, err := report.HTML(r)
		if err != nil {
			return err
		}
		if err := o.page.write(page); err != nil {
			return err
		}
	}
	var err error
	if o.json {
		err = report.JSON(std.out, r)
	} else {
		err = report.Text(std.out, r)
	}
	if err == nil && len(r.Broken) > 0 {
		err = fmt.Errorf("%w: %s", errBroken, strings.Join(slices.Clone(r.Broken), "; "))
	}
	return err
}
