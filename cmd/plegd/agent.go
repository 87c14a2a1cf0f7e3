package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/metrics"
	"github.com/plegd/plegd/internal/rpc"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/watch"
)

// drainTimeout is how long a reader of stdout may take, once all has been
// written down, to read what is left. What it doesn't read it can ask for with
// --since.
const drainTimeout = 500 * time.Millisecond

// agent is `plegd run`: a generator, what serves it, and stdout.
type agent struct {
	o        runOptions
	out      io.Writer
	getenv   func(string) string
	lines    *logWriter
	log      *slog.Logger
	level    slog.LevelVar
	registry *prometheus.Registry
	stop     context.CancelFunc // ends the agent

	mu        sync.Mutex
	generator *pleg.Generator // nil until there is an endpoint
	ran       bool            // the generator has ended
	failed    error           // and how
	waiting   string          // why there is none
}

func newAgent(o runOptions, std streams) *agent {
	lines := newLogWriter(std.err)
	a := &agent{o: o, out: std.out, getenv: std.getenv, lines: lines, registry: newRegistry(), waiting: "starting"}
	a.log = o.log.logger(lines, &a.level)
	return a
}

// newRegistry returns a registry with what is about the process.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	b := thisBuild()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		metrics.BuildInfo(b.Version, b.Go))
	return r
}

// run runs until ctx ends or the reader of stdout goes away.
//
// With an endpoint, named or known from the state, the state comes first: that
// it is locked says more than that an address is in use. Without one there is no telling which runtime the
// state must be of, so health is served while one is looked for.
func (a *agent) run(ctx context.Context) error {
	defer a.lines.close()
	a.log.Info("plegd starts", "version", thisBuild().Version, "mode", a.o.mode, "state_dir", a.o.stateDir)
	ctx, a.stop = context.WithCancel(ctx)
	defer a.stop()
	ended := stopInTime(ctx, a.log, a.rest)
	defer ended()
	quiet := signsOfLife(a.o, a.getenv, func() bool { return a.health().Live }, func() {
		a.log.Error("the supervisor of --watchdog is gone, ending")
		a.stop()
	})
	defer quiet()
	if a.o.endpoint == "" {
		known, err := knownEndpoint(a.o.stateDir, a.log)
		if err != nil {
			return err
		}
		if err := a.o.checkSockets(known); err != nil {
			return err
		}
		a.o.endpoint = known
	}
	if a.o.endpoint != "" {
		if err := a.open(ctx, a.o.endpoint); err != nil {
			return err
		}
	}
	turns := watch.NewTurns()
	srv, err := server.New(server.Config{
		Listen: a.o.listen, Socket: a.o.socket, SocketMode: a.o.sock.mode, SocketGroup: a.o.sock.group,
		RPC: rpc.New(rpc.Config{Health: a.health, Source: func() (rpc.Source, error) { return a.source() }, Turns: turns, Logger: a.log}).Serve,
		API: a.o.http.api, Token: a.o.http.token,
		Health: a.health, Source: func() (server.Source, error) { return a.source() }, Turns: turns, Logger: a.log, LogLevel: &a.level,
		Metrics: promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout}),
	})
	if err != nil {
		return errors.Join(a.o.ownPlaces(flagOfAddress(err)), a.close())
	}
	serveCRI, err := a.serveCRI(turns)
	if err != nil {
		return errors.Join(err, srv.Close(), a.close())
	}
	tellSystemd(daemon.SdNotifyReady)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return srv.Run(ctx) })
	if serveCRI != nil {
		group.Go(func() error { return serveCRI(ctx) })
	}
	group.Go(func() error {
		<-ctx.Done()
		tellSystemd(daemon.SdNotifyStopping)
		return nil
	})
	group.Go(func() error {
		defer a.stop()
		return a.generate(ctx)
	})
	err = group.Wait()
	a.log.Info("plegd has stopped")
	return err
}

const (
	// maxScrapes at a time and scrapeTimeout bound what scrapers can cost.
	maxScrapes    = 4
	scrapeTimeout = 10 * time.Second
)

// generate finds a runtime if nobody named one, and runs the generator.
func (a *agent) generate(ctx context.Context) error {
	gen := a.current()
	if gen == nil {
		endpoint, err := finder{usualSockets, a.log, a.setWaiting}.find(ctx)
		if err != nil {
			return nil //nolint:nilerr // asked to stop before there was a runtime
		}
		if err := a.open(ctx, endpoint); err != nil {
			return err
		}
		gen = a.current()
	}
	if a.o.output == outputNone {
		return a.runGenerator(ctx, gen)
	}
	// Subscribing comes before running, so that nothing of this run is missed.
	sub, err := gen.Subscribe(a.o.since)
	if err != nil {
		return errors.Join(fmt.Errorf("--since: %w", err), gen.Close())
	}
	return a.runWithOutput(ctx, gen, sub)
}

// runWithOutput runs the generator while stdout is fed. Without its reader the
// agent has nothing to do, and ends.
func (a *agent) runWithOutput(ctx context.Context, gen *pleg.Generator, sub *pleg.Subscription) error {
	printed := make(chan error, 1)
	go func() {
		err := newPrinter(a.out, a.o.output).print(sub)
		a.stop()
		printed <- err
	}()
	gone := watchReader(ctx, a.out, a.stop)
	defer gone()

	err := a.runGenerator(ctx, gen)
	select {
	case perr := <-printed:
		return errors.Join(err, a.readerError(perr))
	case <-time.After(drainTimeout):
		// A write to a pipe that nobody reads can't be called off; the
		// goroutine goes with the process.
		return err
	}
}

// runGenerator runs the generator and keeps how it ended, for rest.
func (a *agent) runGenerator(ctx context.Context, gen *pleg.Generator) error {
	err := unfitMode(gen.Run(ctx))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ran, a.failed = true, err
	return err
}

// rest says what an end that takes too long waits for, and the code that fits:
// none but success if nothing is left to be written.
func (a *agent) rest() (waits string, code int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.generator == nil:
		return "what it began with to be opened", exitOK
	case a.ran:
		return "readers of stdout and of the API", exitCode(a.failed)
	case a.generator.Ending() == pleg.EndingCloses:
		return a.generator.Ending().String(), exitOK
	default:
		return a.generator.Ending().String(), exitFailure
	}
}

// readerError says what the end of stdout means.
func (a *agent) readerError(err error) error {
	switch {
	case err == nil:
		return nil
	case readerGone(err):
		a.log.Info("stdout was closed by its reader")
		return nil
	case errors.Is(err, pleg.ErrExpired):
		return fmt.Errorf("stdout: its reader was slower than the retention of the journal: %w", err)
	default:
		return fmt.Errorf("stdout: %w", err)
	}
}

// open makes the generator. A check of the state file ends with ctx.
func (a *agent) open(ctx context.Context, endpoint string) error {
	cfg := a.o.config(endpoint)
	cfg.Logger, cfg.Registerer, cfg.CheckState = a.log, a.registry, checkAtStart(ctx)
	gen, err := pleg.New(cfg)
	if err != nil {
		return a.o.ownPlaces(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.generator = gen
	return nil
}

// close releases a generator that was never run.
func (a *agent) close() error {
	if gen := a.current(); gen != nil {
		return gen.Close()
	}
	return nil
}

// current is the generator, nil if there is none yet.
func (a *agent) current() *pleg.Generator {
	gen, _ := a.source()
	return gen
}

func (a *agent) setWaiting(why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = why
}

// health is that of the generator, or says why there is none yet.
func (a *agent) health() pleg.Health {
	gen, why := a.source()
	if why == nil {
		return gen.Health()
	}
	return pleg.Health{Live: true, Checks: []pleg.Check{
		{Name: pleg.CheckArbiter, OK: true, Reason: "waits for a runtime"},
		{Name: pleg.CheckRelist, Reason: why.Error()},
	}}
}

// source is the generator, or why there is none yet.
func (a *agent) source() (*pleg.Generator, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.generator == nil {
		return nil, errors.New(a.waiting)
	}
	return a.generator, nil
}
