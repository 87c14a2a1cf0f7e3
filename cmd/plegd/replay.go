package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/generic"
	"github.com/plegd/plegd/internal/replay"
	"github.com/plegd/plegd/internal/seam"
	"github.com/plegd/plegd/internal/selection"
)

// replayOptions are the flags of `plegd replay`.
type replayOptions struct {
	eventsOptions // the form of the output, and the filter

	input      string
	mode       string
	period     time.Duration
	periodMax  time.Duration
	rpcTimeout time.Duration
	log        logOptions
}

// newReplay makes `plegd replay`.
func newReplay(std streams) *cobra.Command {
	o := replayOptions{
		eventsOptions: eventsOptions{clientOptions: clientOptions{std: std}},
		mode:          string(pleg.ModeHybrid), period: generic.DefaultBase, periodMax: generic.DefaultMax, rpcTimeout: generic.DefaultRPCTimeout,
	}
	cmd := &cobra.Command{
		Use:   "replay --input FILE",
		Short: "Show the events that an agent would have told of what was recorded",
		Long: "replay runs an agent on a recording of plegd record, in virtual time, and writes the events that\n" +
			"it would have told. The same recording and the same flags give the same output. A recording that\n" +
			"is torn is replayed up to the tear. What the runtime would have answered at a moment at which it\n" +
			"was not asked follows from its last answer and from the events since.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			chosen, err := o.complete(cmd)
			if err != nil {
				return err
			}
			return o.replay(chosen)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.input, "input", "", "file that plegd record has written")
	choiceFlag(cmd, &o.mode, "mode", "what is used: stream and relist, or one of them", modeNames()...)
	durationFlag(f, &o.period, "relist-period", "period of relists while the stream can't be relied on")
	durationFlag(f, &o.periodMax, "relist-period-max", "longest period, which a healthy stream earns")
	durationFlag(f, &o.rpcTimeout, "rpc-timeout", "bound of each call to the runtime")
	o.filterOptions.addEvents(cmd)
	formFlag(cmd, &o.form, formTable, outputJSON, formYAML, formCloudEvents, formTemplate)
	f.BoolVar(&o.kubelet, "kubelet-view", false, "what the kubelet's GenericPLEG would have sent")
	colorFlag(cmd, &o.color)
	o.log.addTo(cmd)
	_ = cmd.MarkFlagFilename("input") // it fails for a flag that doesn't exist only
	o.log.level = "warn"
	f.Lookup("log-level").DefValue = o.log.level
	return cmd
}

func (o *replayOptions) complete(cmd *cobra.Command) (*selection.Selection, error) {
	if !cmd.Flags().Changed("relist-period-max") {
		o.periodMax = 0 // at least the period
	}
	chosen, err := o.selection()
	switch {
	case err != nil:
		return nil, err
	case o.input == "":
		return nil, usagef("--input \"\": must be a file that plegd record has written; see plegd replay --help")
	case o.kubelet && len(o.filter.Types)+len(o.filter.Sources) > 0:
		return nil, usagef("--type and --source choose plegd's own events, and --kubelet-view follows from all of them; leave one of them out")
	case o.kubelet && o.form.name == formCloudEvents:
		return nil, usagef("--output %s: is not possible with --kubelet-view; use --output json", formCloudEvents)
	}
	cfg := o.config()
	cfg.Endpoint = usualSockets[0] // it is that of the recording
	return chosen, flagOfField(cfg.Validate())
}

func (o *replayOptions) config() pleg.Config {
	return pleg.Config{Mode: pleg.Mode(o.mode), RelistPeriod: o.period, RelistPeriodMax: o.periodMax, RPCTimeout: o.rpcTimeout}
}

// replay ends the process, unless there is nothing to replay.
func (o *replayOptions) replay(chosen *selection.Selection) error {
	rec, err := replay.Open(o.input)
	if err != nil {
		return fmt.Errorf("--input %w", err)
	}
	replay.Main(rec, func(ctx context.Context, w *replay.World) int {
		err := o.run(ctx, w, chosen)
		if readerGone(err) { // such as head: it has seen enough
			return exitOK
		}
		if err != nil {
			fmt.Fprintln(o.std.err, "plegd:", oneLine(err))
		}
		return exitCode(err)
	})
	return nil
}

// run runs the agent in the world of the recording.
func (o *replayOptions) run(ctx context.Context, w *replay.World, chosen *selection.Selection) error {
	cfg := o.config()
	w.Configure(&cfg, seam.Hooks{})
	var level slog.LevelVar
	cfg.Logger = slog.New(&clockHandler{o.log.logger(o.std.err, &level).Handler(), cfg.Clock.Wall})
	gen, err := pleg.New(cfg)
	if err != nil {
		return err
	}
	sub, err := gen.Subscribe(nil)
	if err != nil {
		return errors.Join(err, gen.Close())
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	told := 0
	format := o.eventFormat(o.std.out, cfg.NodeName)
	p := &printer{w: bufio.NewWriterSize(o.std.out, outputBuffer), format: func(ev *pleg.Event) ([]byte, error) {
		if !chosen.Event(ev) {
			return nil, nil
		}
		told++
		return format(ev)
	}}
	printed := make(chan error, 1)
	go func() {
		err := p.print(sub)
		stop()
		printed <- err
	}()
	err = gen.Run(ctx)
	if perr := <-printed; perr != nil {
		return errors.Join(perr, err)
	}
	o.summary(o.std.err, w, told)
	return err
}

// summary says what was replayed, and what is missing.
func (o *replayOptions) summary(out io.Writer, w *replay.World, told int) {
	h := w.Header()
	end, torn := w.End()
	calls := w.Calls()
	redacted := ""
	if h.Redacted {
		redacted = ", redacted"
	}
	fmt.Fprintf(out, "replayed %v of %s (mode %s, lists each %v%s) in mode %s: %d events told; asked for %d lists and %d statuses, %d errors\n",
		time.Duration(end.At).Round(time.Millisecond), time.Unix(0, h.StartedAt).UTC().Format(time.RFC3339), h.Mode, time.Duration(h.Period), redacted,
		o.mode, told, calls.Lists, calls.Statuses, calls.Errors)
	if torn != nil {
		fmt.Fprintf(out, "warning: %v; what was before that was replayed\n", torn)
	}
	if end.Left > 0 {
		fmt.Fprintf(out, "warning: the recording ended since it was full\n")
	}
	if n := w.Lost(); n > 0 {
		fmt.Fprintf(out, "warning: the recording lacks %d entries for which the disk was too slow\n", n)
	}
}

// clockHandler gives lines the time of a clock.
type clockHandler struct {
	slog.Handler

	now func() time.Time
}

// Handle implements [slog.Handler].
func (h *clockHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Time = h.now()
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *clockHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &clockHandler{h.Handler.WithAttrs(attrs), h.now}
}

// WithGroup implements [slog.Handler].
func (h *clockHandler) WithGroup(name string) slog.Handler {
	return &clockHandler{h.Handler.WithGroup(name), h.now}
}
