package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plegd/plegd/internal/retry"
	"github.com/plegd/plegd/internal/simruntime"
)

// script is what --fault and --script ask for.
type script struct {
	clock *simruntime.StepClock
	items []*scriptItem
}

// maxScript is the largest file that --script reads.
const maxScript = 1 << 20

// newScript reads the items of flags and then those of a file.
func newScript(flags []string, file string, seed uint64) (*script, error) {
	s := &script{clock: &simruntime.StepClock{}}
	for _, text := range flags {
		item, err := parseScriptItem(text, seed)
		if err != nil {
			return nil, usagef("--fault %q: %v", text, err)
		}
		s.items = append(s.items, item)
	}
	if file == "" {
		return s, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, usagef("--script %q: can't be read: %v", file, errors.Unwrap(err))
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxScript+1))
	switch {
	case err != nil:
		return nil, usagef("--script %q: can't be read: %v", file, err)
	case len(text) > maxScript:
		return nil, usagef("--script %q: has more than %s, which is the most it may have", file, showSize(maxScript))
	}
	items, err := parseScript(string(text), seed)
	if err != nil {
		return nil, usagef("--script %q: %v", file, err)
	}
	s.items = append(s.items, items...)
	return s, nil
}

// parseScript reads one item a line. Empty lines and lines that begin with # are
// left out. An error names the line.
func parseScript(text string, seed uint64) (items []*scriptItem, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		item, err := parseScriptItem(line, seed)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		items = append(items, item)
	}
	return items, nil
}

// begin puts into effect what is in effect from the start.
func (s *script) begin(rt *simruntime.Runtime) (ends []func(context.Context), err error) {
	for _, i := range s.items {
		if i.do != "" || i.at > 0 {
			continue
		}
		h, err := rt.AddRule(i.rule)
		if err != nil {
			return nil, err
		}
		if i.length > 0 {
			ends = append(ends, func(ctx context.Context) {
				_ = retry.Sleep(ctx, i.length)
				h.Remove()
			})
		}
	}
	return ends, nil
}

// run lets the rest happen until ctx ends.
func (s *script) run(ctx context.Context, rt *simruntime.Runtime, ends []func(context.Context)) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, end := range ends {
		group.Go(func() error { end(ctx); return nil })
	}
	for _, i := range s.items {
		switch {
		case i.do != "":
			group.Go(func() error { return s.command(ctx, rt, i) })
		case i.at > 0:
			group.Go(func() error { return fault(ctx, rt, i) })
		}
	}
	return group.Wait()
}

// fault puts a fault into effect when it is time, and ends it.
func fault(ctx context.Context, rt *simruntime.Runtime, i *scriptItem) error {
	_ = retry.Sleep(ctx, i.at)
	select {
	case <-ctx.Done(): // the simulation is over, which is no error
		return nil
	default:
	}
	h, err := rt.AddRule(i.rule)
	if err != nil || i.length == 0 {
		return err
	}
	_ = retry.Sleep(ctx, i.length)
	h.Remove()
	return nil
}

// command does something to the runtime when it is time, and again.
func (s *script) command(ctx context.Context, rt *simruntime.Runtime, i *scriptItem) error {
	_ = retry.Sleep(ctx, i.at)
	for ctx.Err() == nil {
		began := time.Now()
		if err := s.once(ctx, rt, i); err != nil {
			return fmt.Errorf("do %s: %w", i.do, err)
		}
		if i.each == 0 {
			return nil
		}
		_ = retry.Sleep(ctx, i.each-time.Since(began))
	}
	return nil
}

func (s *script) once(ctx context.Context, rt *simruntime.Runtime, i *scriptItem) error {
	// For so long, or to the end.
	undo := func(f func()) {
		if i.length > 0 {
			_ = retry.Sleep(ctx, i.length)
			f()
		}
	}
	switch i.do {
	case "down":
		rt.Down()
		undo(rt.Up)
	case "kill":
		rt.Kill()
		undo(rt.Up)
	case "up":
		rt.Up()
	case "restart":
		rt.Down()
		_ = retry.Sleep(ctx, i.length)
		rt.Up()
	case "freeze":
		rt.Freeze()
		undo(rt.Thaw)
	case "thaw":
		rt.Thaw()
	case "end-streams":
		rt.EndStreams(i.code)
	case "remove-socket":
		if err := rt.RemoveSocket(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	case "clock":
		s.clock.Step(i.step)
	case "profile":
		rt.Down()
		_ = retry.Sleep(ctx, i.length)
		defer rt.Up()
		return become(ctx, rt, profiles[i.profile])
	}
	return nil
}

// become makes the runtime another one, which is possible only while it is
// down: another command may have it up again at any moment.
func become(ctx context.Context, rt *simruntime.Runtime, p simruntime.Profile) error {
	for ctx.Err() == nil {
		rt.Down()
		if err := rt.SetProfile(p); !errors.Is(err, simruntime.ErrState) {
			return err
		}
	}
	return nil
}
