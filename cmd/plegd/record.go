package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/backoff"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/evented"
	"github.com/plegd/plegd/generic"
	"github.com/plegd/plegd/internal/recording"
	"github.com/plegd/plegd/internal/seam"
	"github.com/plegd/plegd/internal/sysclock"
)

// defaultRecordSize is how large a recording gets: some hours of a full node.
const defaultRecordSize = 100 << 20

// recordOptions are the flags of `plegd record`.
type recordOptions struct {
	std        streams
	endpoint   string
	output     string
	mode       string
	period     time.Duration
	rpcTimeout time.Duration
	length     time.Duration // 0: until it is asked to stop
	size       int64
	redact     bool
	log        logOptions
}

// newRecord makes `plegd record`.
func newRecord(std streams) *cobra.Command {
	o := recordOptions{std: std, mode: string(pleg.ModeHybrid), period: generic.DefaultBase, rpcTimeout: generic.DefaultRPCTimeout, size: defaultRecordSize}
	cmd := &cobra.Command{
		Use:   "record --output FILE",
		Short: "Record what a runtime says, to be replayed",
		Long: "record writes all that the CRI runtime says into a file: its event stream, the lists that are\n" +
			"asked for each --relist-period, the statuses of what has changed, and its errors, with their\n" +
			"times. It needs no agent and changes nothing. It ends after --for, when the file has --max-size,\n" +
			"or at SIGINT or SIGTERM. What was written is good whenever it is killed.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			ctx, stop := stopOnSignal(cmd.Context())
			defer stop()
			return o.run(ctx)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.output, "output", "", "file to write, which must not be there yet")
	endpointFlag(f, &o.endpoint, "")
	durationFlag(f, &o.length, "for", "how long to record (default: until it is asked to stop)")
	sizeFlag(f, &o.size, "max-size", "most that the file may have")
	f.BoolVar(&o.redact, "redact", false, "replace names, labels, annotations, images and addresses, each by the same word throughout")
	choiceFlag(cmd, &o.mode, "mode", "what the runtime is asked for: stream and lists, or one of them", modeNames()...)
	durationFlag(f, &o.period, "relist-period", "time between two lists")
	durationFlag(f, &o.rpcTimeout, "rpc-timeout", "bound of each call to the runtime")
	o.log.addTo(cmd)
	_ = cmd.MarkFlagFilename("output") // it fails for a flag that doesn't exist only
	return cmd
}

func (o *recordOptions) complete(cmd *cobra.Command) error {
	if _, err := namedEndpoint(cmd.Flags(), o.std.getenv, &o.endpoint); err != nil {
		return err
	}
	if o.output == "" {
		return usagef("--output \"\": must be a file to write; see plegd record --help")
	}
	if err := flagOfField(o.config(usualSockets[0]).Validate()); err != nil { // whichever socket it will be
		return err
	}
	if o.size < recording.LeastSize {
		return usagef("--max-size %s: must be at least %s", showSize(o.size), showSize(recording.LeastSize))
	}
	return nil
}

func (o *recordOptions) run(ctx context.Context) error {
	var level slog.LevelVar
	log := o.log.logger(o.std.err, &level)
	if o.endpoint == "" {
		var err error
		if o.endpoint, err = anyRuntime(ctx); err != nil { // who records is there to name one
			return stopped(ctx, err)
		}
	}
	file, err := os.OpenFile(o.output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usagef("--output %q: is there already; remove it or name another file", o.output)
	}
	if err != nil {
		return fmt.Errorf("--output %q: %w", o.output, errors.Unwrap(err))
	}
	defer func() { _ = file.Close() }()
	tap := recording.NewTap(sysclock.New())
	gen, err := o.generator(tap, log)
	if err != nil {
		return errors.Join(err, os.Remove(o.output))
	}
	var redactor *recording.Redactor
	if o.redact {
		redactor = recording.NewRedactor()
	}
	w, err := recording.NewWriter(file, o.header(tap.StartedAt()), o.size)
	if err != nil {
		return errors.Join(fmt.Errorf("--output %q: %w", o.output, err), gen.Close())
	}
	var asked error
	end, err := tap.Record(ctx, func(ctx context.Context) error {
		asked = gen.Run(ctx)
		return asked
	}, w, redactor, o.length)
	if err = errors.Join(err, file.Sync()); err != nil {
		return fmt.Errorf("--output %q: %w", o.output, err)
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	count := w.Count()
	fmt.Fprintf(o.std.err, "recorded %v: %s, %s, %s, %s, %.1f KiB in %s; %s\n",
		time.Duration(end.At).Round(time.Millisecond), counted(count.Events, "event", "s"), counted(count.Lists, "list", "s"), counted(count.Statuses, "status", "es"),
		counted(count.Errors, "error", "s"), float64(info.Size())/(1<<10), o.output, end.Reason)
	if count.Lost > 0 {
		fmt.Fprintf(o.std.err, "the disk was too slow for %d more of what came\n", count.Lost)
	}
	return asked
}

// counted is a number with its noun, which has an ending unless it is one.
func counted(n int64, noun, ending string) string {
	if n != 1 {
		noun += ending
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// header says what is recorded.
func (o *recordOptions) header(at int64) recording.Header {
	return recording.Header{
		StartedAt: at, Agent: thisBuild().String(), Mode: o.mode, Period: int64(o.period), Timeout: int64(o.rpcTimeout), Redacted: o.redact,
	}
}

// generator makes the one that asks.
func (o *recordOptions) generator(tap *recording.Tap, log *slog.Logger) (*pleg.Generator, error) {
	cfg := o.config(o.endpoint)
	cfg.Logger = log
	// What nobody is subscribed to is missing in each replay, and a recording is short:
	// it is tried again sooner than an agent does, which has years.
	seam.Set(&cfg, seam.Hooks{
		Stats: tap, StreamBackoff: evented.DefaultBackoffBase,
		Redial: &backoff.Config{BaseDelay: evented.DefaultBackoffBase, Multiplier: 1, MaxDelay: evented.DefaultBackoffBase},
	})
	return pleg.New(cfg)
}

// config is that of the generator that asks. Its state is of no use to anybody.
func (o *recordOptions) config(endpoint string) pleg.Config {
	return pleg.Config{Endpoint: endpoint, Mode: pleg.Mode(o.mode), RelistPeriod: o.period, RelistPeriodMax: o.period, RPCTimeout: o.rpcTimeout}
}
