package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/generic"
	"github.com/plegd/plegd/internal/doctor"
)

var (
	// errUnfit: the doctor found what speaks against following a runtime by its events.
	errUnfit = errors.New("the runtime is not fit for evented operation")
	// errUnjudged: the report says why.
	errUnjudged = errors.New("the runtime could not be judged")
)

// doctorOptions are the flags of `plegd doctor`.
type doctorOptions struct {
	std        streams
	endpoint   string
	listen     time.Duration
	rpcTimeout time.Duration
	json       bool
	color      string
	workload   workloadOptions
}

// newDoctor makes `plegd doctor`.
func newDoctor(std streams) *cobra.Command {
	o := doctorOptions{std: std, listen: doctor.DefaultFor, rpcTimeout: generic.DefaultRPCTimeout}
	cmd := &cobra.Command{
		Use:   "doctor [flags] [-- COMMAND OF THE WORKLOAD'S CONTAINERS]",
		Short: "Say whether a runtime is fit for evented operation",
		Long: "doctor listens to the event stream of the CRI runtime, twice at once, lists each second beside it,\n" +
			"and says of each thing that can be wrong with a stream whether it is, and what to do about it. It\n" +
			"needs no agent and changes nothing. It judges what happens while it listens: on a node where nothing\n" +
			"does, it can't say much.\n\n" +
			"On a containerd before 2.0, where subscribers compete, what it hears is taken from the others while it\n" +
			"listens.",
		Example: "  plegd doctor --for 5m                                         # under the node's own load\n" +
			"  plegd doctor --workload image=busybox:1.37,pods=5 -- sleep 3600   # with pods of its own\n" +
			"  plegd doctor --workload seed=1,pods=20 --fault method=event,drop,share=0.1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, args); err != nil {
				return err
			}
			ctx, stop := stopOnSignal(cmd.Context())
			defer stop()
			return o.run(ctx)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	endpointFlag(f, &o.endpoint, "")
	durationFlag(f, &o.listen, "for", "how long to listen; the question after a reconnect takes 8s more")
	durationFlag(f, &o.rpcTimeout, "rpc-timeout", "bound of each call to the runtime")
	o.workload.addTo(cmd)
	f.BoolVar(&o.json, "json", false, "write the report as JSON")
	colorFlag(cmd, &o.color)
	return cmd
}

func (o *doctorOptions) complete(cmd *cobra.Command, args []string) error {
	if err := o.workload.complete(cmd, args); err != nil {
		return err
	}
	if _, err := namedEndpoint(cmd.Flags(), o.std.getenv, &o.endpoint); err != nil {
		return err
	}
	if o.listen < doctor.MinFor {
		return usagef("--for %v: must be at least %v", o.listen, doctor.MinFor)
	}
	return nil
}

func (o *doctorOptions) run(ctx context.Context) error {
	seen, err := o.examine(ctx)
	if err != nil {
		return stopped(ctx, err)
	}
	report := doctor.Judge(&seen)
	if err := o.write(&report); err != nil {
		return err
	}
	switch report.Verdict {
	case doctor.Bad:
		return errUnfit
	case doctor.Unknown:
		return errUnjudged
	default:
		return nil
	}
}

// examine examines the runtime, with the workload if one is wanted.
func (o *doctorOptions) examine(ctx context.Context) (seen doctor.Observed, err error) {
	tell := func(s string) { fmt.Fprintln(o.std.err, "plegd doctor:", s) }
	w, endpoint, err := o.workload.start(ctx, o.endpoint, tell)
	if err != nil {
		return seen, err
	}
	defer func() { err = errors.Join(err, end(w)) }()
	cfg := doctor.Config{Endpoint: endpoint, For: o.listen, RPCTimeout: o.rpcTimeout}
	cfg.Listening = func(runtime, version string) {
		tell(fmt.Sprintf("listening to %s %s on %s for %v", printable(runtime), printable(version), endpoint, o.listen))
	}
	if w != nil {
		cfg.During = func(ctx context.Context) error {
			defer w.Halt()
			if err := w.Begin(ctx); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}
	}
	seen, err = doctor.Examine(ctx, cfg)
	if w != nil && w.Failed() != "" { // then little may have happened
		tell(printable(w.Failed()))
	}
	return seen, err
}

// write writes the report.
func (o *doctorOptions) write(r *doctor.Report) error {
	if o.json {
		enc := json.NewEncoder(o.std.out)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	on := colored(o.color, o.std)
	var b strings.Builder
	for _, l := range r.Lines {
		fmt.Fprintf(&b, "%s %-10s  %s\n", paint(fmt.Sprintf("%-7s", l.Verdict), verdictColors[l.Verdict], on), l.Check, printable(l.Finding))
		if l.Advice != "" {
			fmt.Fprintf(&b, "%20s%s\n", "-> ", printable(l.Advice))
		}
	}
	if !r.Whole {
		b.WriteString("\nThis was ended before its time; what was seen until then is judged.\n")
	}
	fmt.Fprintf(&b, "\n%s\n", paint(r.Summary, verdictColors[r.Verdict], on))
	_, err := o.std.out.Write([]byte(b.String()))
	return err
}

var verdictColors = map[doctor.Verdict]color{doctor.Good: good, doctor.Unknown: faint, doctor.Warning: waits, doctor.Bad: bad}
