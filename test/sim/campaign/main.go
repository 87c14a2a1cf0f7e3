// Command campaign runs a range of the simulation's seeds on all processors, in
// processes of its own, and goes on where it was stopped. `make sim` and `make
// sim-campaign` are how to call it.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
	twice      bool
	build      string // of the test binary: what another one found out is of no use
	perProcess time.Duration
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.bin, "bin", "", "test binary of package test/sim")
	flag.StringVar(&o.dir, "dir", "", "directory for progress and failures")
	flag.Uint64Var(&o.from, "from", 0, "first seed")
	flag.Uint64Var(&o.to, "to", 0, "last seed")
	flag.Uint64Var(&o.chunk, "chunk", 20, "seeds between two notes of progress")
	flag.IntVar(&o.processes, "processes", runtime.NumCPU(), "processes at once")
	flag.BoolVar(&o.resume, "resume", false, "go on where a campaign with this binary was stopped")
	flag.BoolVar(&o.twice, "twice", false, "run each seed twice and compare")
	flag.DurationVar(&o.perProcess, "timeout", 5*time.Minute, "longest time of one process")
	flag.Parse()
	switch {
	case o.from > o.to:
		return fmt.Errorf("seeds %d to %d: the first must not be above the last", o.from, o.to)
	case o.chunk == 0 || o.processes < 1:
		return fmt.Errorf("%d seeds at a time in %d processes: both must be positive", o.chunk, o.processes)
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
	// A copy, for each seed starts it anew and whoever builds meanwhile replaces it.
	o.bin = filepath.Join(o.dir, "sim-"+o.build+".test")
	if err := os.WriteFile(o.bin, binary, 0o755); err != nil {
		return err
	}
	defer func() { _ = os.Remove(o.bin) }()
	if !o.resume { // what failed before is of no interest now
		old, _ := filepath.Glob(filepath.Join(o.dir, "failed-*.txt"))
		for _, path := range old {
			_ = os.Remove(path)
		}
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
	_, left := p.cover(seeds{o.from, o.to}, o.chunk)
	for _, c := range left {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return o.one(ctx, p, c)
		})
	}
	return g.Wait()
}

// one runs the seeds of a chunk and keeps what came of them. They run in one
// process, which costs a quarter less; if anything is wrong each runs again in a
// process of its own, which is how a seed is reproduced.
func (o *options) one(ctx context.Context, p *progress, c seeds) error {
	began := time.Now()
	if !o.twice {
		all, err := o.seeds(ctx, c)
		if err != nil {
			return err // this chunk is run again
		}
		if len(all.Violations) == 0 {
			return p.keep(all, time.Since(began))
		}
	}
	all := chunk{From: c.From, To: c.To, Counts: map[string]int{}, Violations: map[string]string{}}
	for seed := c.From; seed <= c.To; seed++ {
		one, err := o.seeds(ctx, seeds{seed, seed})
		if err != nil {
			return err
		}
		all.add(one)
		if o.twice {
			again, err := o.seeds(ctx, seeds{seed, seed})
			if err != nil {
				return err
			}
			all.compare(one, again)
		}
	}
	if !o.twice && len(all.Violations) == 0 {
		all.violate(c, "each is right alone, but not in one process after the others")
	}
	return p.keep(all, time.Since(began))
}

// seeds runs seeds in one process.
func (o *options) seeds(ctx context.Context, s seeds) (c chunk, err error) {
	summary := filepath.Join(o.dir, "summary-"+s.String())
	defer func() { _ = os.Remove(summary) }()
	limited, cancel := context.WithTimeout(ctx, o.perProcess)
	defer cancel()
	out, err := exec.CommandContext(limited, o.bin, "-test.run", "^TestSim$",
		"-from", fmt.Sprint(s.From), "-to", fmt.Sprint(s.To), "-summary", summary, fmt.Sprint("-digests=", o.twice)).CombinedOutput()
	if ctx.Err() != nil {
		return c, ctx.Err()
	}
	if err != nil {
		path := filepath.Join(o.dir, "failed-"+s.String()+".txt")
		if err := os.WriteFile(path, out, 0o644); err != nil {
			return c, err
		}
		fmt.Fprintf(os.Stderr, "seed %s failed: %s\n", s, path)
	}
	line, readErr := os.ReadFile(summary)
	if readErr != nil { // it died, by a deadlock or a panic
		c = chunk{Counts: map[string]int{}, Violations: map[string]string{}}
		c.violate(s, fmt.Sprintf("the process died: %v", err))
		return c, nil
	}
	if readErr := json.Unmarshal(line, &c); readErr != nil {
		return c, readErr
	}
	if err != nil && len(c.Violations) == 0 { // the test failed beside what the oracle says
		c.violate(s, fmt.Sprintf("the test failed: %v", err))
	}
	return c, nil
}
