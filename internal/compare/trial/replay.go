package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/internal/recording"
)

// closingRelist is how much of the end of a recording is left to the closing
// relist and what comes of it.
const closingRelist = time.Second

// ErrShort: a recording is too short to measure anything.
var ErrShort = errors.New("the recording is too short")

// Replay is Run on a recording: each mode has it happen again, in virtual time
// and in a process of its own. Of cfg it takes the modes, the timeout of calls,
// what is late, the command of a child, which has to call compare.Replay, and
// Tell. The last part of the recording is not judged, but shows what was told late.
func Replay(ctx context.Context, cfg Config, input string) (*compare.Report, error) {
	t := &trial{cfg: cfg}
	defer t.kill()
	rec, err := measureRecording(input)
	if err != nil {
		return nil, err
	}
	tail := t.tail() + closingRelist
	if rec.length < tail+closingRelist {
		return nil, fmt.Errorf("%w: %q is %v long, and %v are needed to see what is told late", ErrShort, input,
			rec.length.Round(100*time.Millisecond), tail+closingRelist)
	}
	closing := rec.length - closingRelist
	// /dev/stdin is another file to a child.
	if input, err = filepath.EvalSymlinks(input); err != nil {
		return nil, err
	}
	for _, m := range cfg.Modes {
		k, err := startKid(cfg.Child, compare.Child{Mode: m, RPCTimeout: cfg.RPCTimeout, Input: input, CloseAt: closing}, func(compare.Line) {})
		if err != nil {
			return nil, err
		}
		t.kids = append(t.kids, k)
	}
	if cfg.Tell != nil {
		cfg.Tell(fmt.Sprintf("replaying %v in %s", rec.length.Round(time.Second), names(cfg.Modes)))
	}
	for _, k := range t.kids {
		select {
		case <-k.ended:
		case <-ctx.Done():
			return nil, fmt.Errorf("interrupted: %w", ctx.Err())
		}
	}
	return t.judgeReplay(rec, input, closing, tail)
}

func (t *trial) judgeReplay(rec *recorded, input string, closing, tail time.Duration) (*compare.Report, error) {
	at := func(d time.Duration) int64 { return rec.header.StartedAt + int64(d) }
	in := compare.Input{
		From: at(0), To: at(rec.length - tail), Close: at(closing), Late: t.cfg.Late, Notes: rec.notes,
		Load:    fmt.Sprintf("as recorded by %s on %s", rec.header.Agent, time.Unix(0, rec.header.StartedAt).UTC().Format(time.RFC3339)),
		Runtime: compare.Runtime{Endpoint: input, Unknown: "it was recorded"},
	}
	var why []string
	for _, k := range t.kids {
		trace := k.result()
		in.Traces = append(in.Traces, trace)
		if trace.Ready == nil {
			why = append(why, k.order.Mode.Name+": "+k.why())
			continue
		}
		in.From = max(in.From, trace.Ready.At)
		in.Runtime.Name, in.Runtime.Version = trace.Ready.Runtime, trace.Ready.Version
	}
	if len(why) == len(t.kids) {
		return nil, fmt.Errorf("%w: %s", ErrNoMode, strings.Join(why, "; "))
	}
	return compare.Judge(in), nil
}

// recorded is what is known of a recording from reading it once.
type recorded struct {
	header recording.Header
	length time.Duration
	notes  []string
}

// deafness is for how long the recorder had no event stream, once it had had one.
type deafness struct {
	had   bool
	since int64 // 0 while it has one
	sum   time.Duration
}

func (d *deafness) take(e *recording.Entry) {
	switch {
	case e.Kind == recording.KindClosed && d.had && d.since == 0 && e.Code != codes.Unimplemented:
		d.since = e.At
	case e.Kind == recording.KindOpened:
		d.had = true
		d.hears(e.At)
	}
}

// hears ends a time without.
func (d *deafness) hears(at int64) {
	if d.since != 0 {
		d.sum += time.Duration(at - d.since)
		d.since = 0
	}
}

// measureRecording reads a recording to its end, or to where it is torn.
func measureRecording(path string) (*recorded, error) {
	f, err := recording.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	reader, err := recording.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", path, err)
	}
	defer reader.Close()
	r := &recorded{header: reader.Header}
	lost := int64(0)
	var deaf deafness
	for {
		e, err := reader.Next()
		switch {
		case err == nil:
			r.length = max(r.length, time.Duration(e.At))
			lost += e.Lost
			deaf.take(e)
			continue
		case errors.Is(err, io.EOF):
			end := reader.End()
			r.length = max(r.length, time.Duration(end.At))
			// A length that was asked for is no lack.
			if end.Reason != "" && end.Reason != recording.EndTime && end.Reason != recording.EndAsked {
				r.notes = append(r.notes, "the recording ended early: "+end.Reason)
			}
		default:
			r.notes = append(r.notes, fmt.Sprintf("%v; what was before that is compared", err))
		}
		deaf.hears(int64(r.length))
		if deaf.sum > 0 {
			r.notes = append(r.notes, fmt.Sprintf("the recorder had no event stream for %v in all, after one had ended: what happened then is known from its lists alone", deaf.sum.Round(time.Millisecond)))
		}
		if lost > 0 {
			r.notes = append(r.notes, fmt.Sprintf("the recording lacks %d entries, for which the disk was too slow", lost))
		}
		return r, nil
	}
}
