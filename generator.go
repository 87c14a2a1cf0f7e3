package pleg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/evented"
	"github.com/plegd/plegd/generic"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/metrics"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// The types of the library that live in its parts.
type (
	// Event is one entry of the journal.
	Event = store.Event
	// Position names an entry of the journal.
	Position = timestamps.Position
	// Subscription is one reader's place in the journal.
	Subscription = arbiter.Subscription
	// LiveSubscription is the place of a reader that doesn't wait for the disk.
	LiveSubscription = arbiter.LiveSubscription
	// ExpiredError says that a position can't be read on from any more.
	ExpiredError = arbiter.ExpiredError
)

// The errors that callers can tell apart, beside those of package store, which
// New passes on.
var (
	// ErrNoPod: there is no such pod.
	ErrNoPod = arbiter.ErrNoPod
	// ErrBehind: a live reader was too slow; see LiveSubscription.
	ErrBehind = arbiter.ErrBehind
	// ErrStopped: the generator has stopped.
	ErrStopped = arbiter.ErrStopped
	// ErrExpired is wrapped by ExpiredError.
	ErrExpired = store.ErrExpired
	// ErrUnsupported: ModeEvented, and the runtime has no event stream.
	ErrUnsupported = evented.ErrUnsupported
	// ErrRan: a Generator runs once.
	ErrRan = errors.New("generator was run before")
)

// ParsePosition reads EPOCH/SEQ, the form that Position.String gives.
func ParsePosition(s string) (Position, error) { return timestamps.ParsePosition(s) }

// Generator composes the parts: client, relister, watcher, arbiter, store.
type Generator struct {
	cfg      Config
	report   store.OpenReport
	store    store.Store
	client   *cri.Client
	loop     *arbiter.Loop
	relister *generic.Relister
	watcher  *evented.Watcher // nil in ModeGeneric
	runtime  runtimeWatch
	admitted cri.Peer         // whose stream may be opened; the watcher's own
	began    time.Duration    // when New was called, by the monotonic clock
	ran      atomic.Bool      // or closed without running
	ending   atomic.Int32     // an Ending
	metrics  *metrics.Metrics // once registered

	judged    chan struct{} // closed when the first try to subscribe has come to something
	judgeOnce sync.Once
}

// New opens the state and prepares the connection to the runtime, which need
// not be there yet. Errors wrap ErrConfig, or store.ErrLocked,
// store.ErrUnwritable, store.ErrNewerSchema, store.ErrForeign. A state file
// that is damaged is set aside and a fresh one made; OpenReport tells. Run or
// Close releases the state.
func New(cfg Config) (*Generator, error) {
	cfg = cfg.defaulted()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	g := &Generator{cfg: cfg, began: cfg.Clock.Mono(), judged: make(chan struct{})}
	if err := g.open(); err != nil {
		return nil, err
	}
	if cfg.hooks.Store != nil {
		g.store = cfg.hooks.Store(g.store)
	}
	if err := g.compose(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// open opens the store.
func (g *Generator) open() error {
	path, err := cri.ParseEndpoint(g.cfg.Endpoint)
	if err != nil {
		return err
	}
	id := store.RuntimeID{Endpoint: path, Node: g.cfg.NodeName}
	if g.cfg.StateDir == "" {
		g.store = store.NewMemory(id, g.cfg.Retention)
		return nil
	}
	bolt, report, err := store.OpenBolt(store.BoltConfig{
		Dir: g.cfg.StateDir, Runtime: id, Retention: g.cfg.Retention, Now: g.cfg.Clock.Wall, Check: g.cfg.CheckState,
	})
	if err != nil {
		return err
	}
	if report.Reason != nil {
		g.cfg.Logger.Error("state is lost; it is rebuilt from the runtime under a new epoch",
			"dir", g.cfg.StateDir, "set_aside", report.SetAside, "reason", report.Reason)
	}
	if report.CheckError != nil {
		g.cfg.Logger.Warn("state file could not be checked", "error", report.CheckError)
	}
	if report.Damaged > 0 {
		g.cfg.Logger.Error("values of the state can't be read and are left out; the runtime is asked again", "dir", g.cfg.StateDir, "values", report.Damaged)
	}
	g.store, g.report = bolt, report
	return nil
}

// compose makes the parts. The loop comes first: it knows the highest tick.
func (g *Generator) compose() (err error) {
	cfg := g.cfg
	path, err := cri.ParseEndpoint(cfg.Endpoint)
	if err != nil {
		return err
	}
	m := new(metrics.Metrics) // observes nothing
	if cfg.Registerer != nil {
		m = metrics.New(g.gauges, cfg.KubeletMetrics)
	}
	g.loop, err = arbiter.NewLoop(arbiter.Config{
		Store: g.store, Clock: cfg.Clock, Log: cfg.Logger, Observer: published{m, g}, CommitRate: cfg.CommitRate, BootID: cfg.BootID,
		// What can't be written is held as long as the journal would keep it.
		Unwritten: cfg.Retention.Entries, UnwrittenBytes: cfg.Retention.Bytes,
		Limits:  arbiter.Limits{BasePeriod: int64(cfg.RelistPeriod), Tombstones: cfg.hooks.Tombstones, TombstoneAge: cfg.hooks.TombstoneAge},
		Runtime: store.RuntimeID{Endpoint: path, Node: cfg.NodeName},
	})
	if err != nil {
		return err
	}
	g.runtime.init()
	g.client, err = cri.Dial(cri.Config{
		Endpoint: cfg.Endpoint, RPCTimeout: cfg.RPCTimeout, Clock: cfg.Clock, Observer: m, Connected: g.connected, Gated: true,
		Dialer: cfg.hooks.Dialer, Redial: cfg.hooks.Redial, Stats: cfg.hooks.Stats,
	})
	if err != nil {
		return err
	}
	g.relister, err = generic.New(generic.Config{
		Runtime: g.client, Sink: g.loop, Calls: g.loop.Calls(), Clock: cfg.Clock,
		Base: cfg.RelistPeriod, Max: cfg.RelistPeriodMax, NoPeriod: cfg.Mode == ModeEvented,
		MaxInspections: cfg.MaxInspections, RPCTimeout: cfg.RPCTimeout, Observer: m, Random: cfg.random("relister"),
	})
	if err != nil {
		return err
	}
	if cfg.Mode != ModeGeneric {
		if err := g.composeWatcher(); err != nil {
			return err
		}
	}
	if cfg.Registerer == nil {
		return nil
	}
	// Last: whoever collects reads all of the parts at once.
	if err := cfg.Registerer.Register(m); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	g.metrics = m
	return nil
}

// published hands what the loop has published to the relister too.
type published struct {
	arbiter.Observer
	g *Generator
}

// Published implements arbiter.Observer.
func (p published) Published(ev *store.Event, latency time.Duration) {
	p.Observer.Published(ev, latency)
	p.g.relister.Told(ev)
}

// composeWatcher makes the part that reads the event stream.
func (g *Generator) composeWatcher() (err error) {
	g.watcher, err = evented.New(evented.Config{
		Open: g.openStream,
		Sink: g.loop, Calls: g.loop.Calls(), Clock: g.cfg.Clock,
		Required: g.cfg.Mode == ModeEvented, Admit: g.admitStream, Random: g.cfg.random("watcher"),
		BackoffMax: g.cfg.hooks.StreamBackoff,
	})
	return err
}

// connected is called by the client for each connection it makes: who is there
// may be another runtime, or another version, than before.
func (g *Generator) connected() {
	g.loop.Submit(&arbiter.Connected{At: g.loop.Calls().Answered(timestamps.FromUnknown)})
	g.runtime.notice()
	if g.watcher != nil {
		g.watcher.Reprobe()
	}
}

// Close releases the state of a Generator that was never run, and can't be run
// after that. Run does it itself: then there is nothing left to do for Close,
// and before its end it is too early. Closing twice is harmless.
func (g *Generator) Close() error {
	if g.ran.Swap(true) {
		return nil
	}
	return g.release()
}

// release lets go of everything, once nothing works with it any more.
func (g *Generator) release() error {
	if g.metrics != nil {
		g.cfg.Registerer.Unregister(g.metrics) // so that the next generator's fit
	}
	if g.relister != nil {
		g.relister.Close()
	}
	if g.client != nil {
		_ = g.client.Close() // ends calls in flight; errors say only that it was closed
	}
	if g.loop != nil {
		g.loop.Close()
	}
	return g.store.Close()
}

// Subscribe returns a subscription to the events after a position, nil for
// those after now. See [arbiter.Loop.Subscribe]. The events that it returns are
// shared with other readers, maps and slices in them too: don't change them.
func (g *Generator) Subscribe(from *Position) (*Subscription, error) { return g.loop.Subscribe(from) }

// SubscribeLive is Subscribe for a reader that wants events as soon as they are
// decided, before their commit. See [arbiter.Loop.SubscribeLive].
func (g *Generator) SubscribeLive(from *Position) (*LiveSubscription, error) {
	return g.loop.SubscribeLive(from)
}

// Position returns that of the newest event.
func (g *Generator) Position() Position { return g.loop.Position() }

// Busy reports whether the runtime says much more than usual, over 1,000 events and
// answers a second, or more than 64 of them are still to be written. What reads in the
// background should then leave the processors to the generator.
func (g *Generator) Busy() bool { return g.loop.Busy() }

// Oldest returns the oldest position that can be subscribed from.
func (g *Generator) Oldest() Position { return g.loop.Oldest() }

// Relist lists everything now and returns when that is applied and can be
// read, or with the error that the list had, or with ctx's, or ErrStopped.
func (g *Generator) Relist(ctx context.Context) error {
	at := g.loop.Counter().Next()
	err := g.relister.Relist(ctx)
	switch {
	case errors.Is(err, generic.ErrStopped):
		return ErrStopped
	case err != nil:
		return err
	}
	return g.loop.WaitFresh(ctx, at)
}

// UpdatePeriods changes the base and the longest relist period at once. What
// New would refuse is refused here too; then nothing has changed.
func (g *Generator) UpdatePeriods(base, longest time.Duration) error {
	cfg := g.cfg
	cfg.RelistPeriod, cfg.RelistPeriodMax = base, longest
	if err := cfg.validate(); err != nil {
		return err
	}
	if err := g.relister.UpdatePeriods(base, longest); err != nil {
		return err
	}
	g.loop.Submit(&arbiter.PeriodChanged{At: g.loop.Calls().Answered(timestamps.FromUnknown), Base: int64(base)})
	return nil
}

// OpenReport tells what opening the state found and did.
func (g *Generator) OpenReport() store.OpenReport { return g.report }

// log is short for the configured logger.
func (g *Generator) log() *slog.Logger { return g.cfg.Logger }
