// Command campaign runs a range of the simulation's seeds on all processors, in
// processes of its own, and goes on where it was stopped. `make sim` and `make
// sim-campaign` are how to call it.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// options are what the command is called with.
type options struct {
	bin, dir   string
	from, to   uint64
	chunk      uint64
	processes  int
	resume     bool
	build      string // of the test binary: what another one found out is of no use
	perProcess time.Duration
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.bin, "bin", "", "test binary of package test/sim")
	flag.StringVar(&o.dir, "dir", "", "directory for progress and failures")
	flag.Uint64Var(&o.from, "from", 0, "first seed")
	flag.Uint64Var(&o.to, "to", 0, "last seed")
	flag.Uint64Var(&o.chunk, "chunk", 100, "seeds per process")
	flag.IntVar(&o.processes, "processes", runtime.NumCPU(), "processes at once")
	flag.BoolVar(&o.resume, "resume", false, "go on where a campaign with this binary was stopped")
	flag.DurationVar(&o.perProcess, "timeout", 20*time.Minute, "longest time of one process")
	flag.Parse()
	switch {
	case o.from > o.to:
		return fmt.Errorf("seeds %d to %d: the first must not be above the last", o.from, o.to)
	case o.chunk == 0 || o.processes < 1:
		return fmt.Errorf("%d seeds in each of %d processes: both must be positive", o.chunk, o.processes)
	}
	binary, err := os.ReadFile(o.bin)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(binary)
	o.build = hex.EncodeToString(sum[:8])
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	began := time.Now()
	p, err := openProgress(filepath.Join(o.dir, "progress.jsonl"), o.build, o.resume)
	if err != nil {
		return err
	}
	defer p.close()
	stopped := o.chunks(ctx, p)
	return p.report(os.Stdout, o, time.Since(began), stopped)
}

// chunks runs what is not done yet.
func (o *options) chunks(ctx context.Context, p *progress) error {
	var g errgroup.Group
	g.SetLimit(o.processes)
	for from := o.from; from <= o.to; from += o.chunk {
		c := seeds{from, min(o.to, from+o.chunk-1)}
		if p.has(c) {
			continue
		}
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return o.one(ctx, p, c)
		})
	}
	return g.Wait()
}

// one runs a chunk in a process and keeps what came of it.
func (o *options) one(ctx context.Context, p *progress, c seeds) error {
	summary := filepath.Join(o.dir, fmt.Sprintf("summary-%d", c.From))
	_ = os.Remove(summary)
	defer func() { _ = os.Remove(summary) }()
	cmd := exec.CommandContext(ctx, o.bin, "-test.run", "^TestSim$", "-test.v", "-test.timeout", o.perProcess.String(),
		"-from", fmt.Sprint(c.From), "-to", fmt.Sprint(c.To), "-summary", summary)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err := cmd.Run()
	if ctx.Err() != nil {
		return ctx.Err() // this chunk is run again
	}
	line, readErr := os.ReadFile(summary)
	if err != nil {
		path := filepath.Join(o.dir, fmt.Sprintf("failed-%d-%d.txt", c.From, c.To))
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "seeds %d to %d failed: %s\n", c.From, c.To, path)
	}
	if readErr != nil { // it died, by a deadlock or a panic
		return p.died(c, out.Bytes(), time.Since(began))
	}
	return p.add(line, time.Since(began))
}
