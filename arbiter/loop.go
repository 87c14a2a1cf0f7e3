package arbiter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// Loop drives one Core: it takes all that waits, steps, commits and publishes.
// Make it with NewLoop, give it to the sources as their Sink, and call Run
// once. All methods but Run may be called by any goroutine at any time.
type Loop struct {
	cfg     Config
	core    *Core
	counter *timestamps.Counter
	calls   *Calls
	inbox   inbox
	view    *view
	feed    *feed
	live    live
	limiter *rate.Limiter
	hooks   Hooks

	// Owned by Run.
	base    store.Meta // as loaded
	runtime store.RuntimeID
	numbers numbers
	pending pending
	trouble trouble
	mended  time.Duration // monotonic, of the last try to mend the store, 0 never
	wakeAt  int64         // monotonic ns
	started int64         // monotonic ns when the loop was made

	progress atomic.Int64 // monotonic ns, see goesOn
	pressure pressure
	health   healthState
	habits   atomic.Pointer[RuntimeHabits] // nil before Version was answered
}

// NewLoop loads the state from the store. The error wraps what the store says.
func NewLoop(cfg Config) (*Loop, error) {
	cfg = cfg.defaulted()
	snap, err := cfg.Store.Load()
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	if snap.Dropped > 0 {
		cfg.Log.Warn("damaged entries of the state were left out", "entries", snap.Dropped)
	}
	l := &Loop{
		cfg: cfg, core: NewCore(cfg.Limits, cfg.BootID), counter: timestamps.NewCounter(highestTick(snap)),
		base: snap.Meta, runtime: snap.Meta.Runtime, started: int64(cfg.Clock.Mono()),
		limiter: rate.NewLimiter(rate.Limit(cfg.CommitRate), commitBurst),
	}
	l.runtime.Endpoint, l.runtime.Node = cfg.Runtime.Endpoint, cfg.Runtime.Node
	l.pressure.init()
	l.calls = NewCalls(cfg.Clock, l.counter)
	l.inbox.init(cfg.Queue, cfg.QueueBytes, l.endCalls)
	l.core.Restore(snap)
	l.numbers = newNumbers(l.base)
	l.feed = newFeed(cfg.Store, timestamps.Position{Epoch: l.numbers.epoch, Seq: l.base.Last})
	l.live.changed = make(chan struct{})
	l.view = newView(snap, l.feed.position())
	l.progress.Store(l.started)
	return l, nil
}

// highestTick returns the highest tick that any part of the state names. The
// meta entry alone would do, but a damaged one is left out by Load.
func highestTick(s *store.Snapshot) timestamps.Tick {
	t := max(s.Meta.Tick, s.Meta.Horizon.Tick)
	for _, r := range s.Records {
		t = max(t, r.Known, r.FirstSeen)
	}
	for _, r := range s.Tombstones {
		t = max(t, r.Known, r.Removed)
	}
	for _, a := range s.Asks {
		t = max(t, a.Since)
	}
	return t
}

// Calls returns the tracker by which sources stamp their calls.
func (l *Loop) Calls() *Calls { return l.calls }

// Counter returns the source of ticks.
func (l *Loop) Counter() *timestamps.Counter { return l.counter }

// Submit implements Sink.
func (l *Loop) Submit(in Input) { l.inbox.put(in) }

// SubmitEvent implements Sink.
func (l *Loop) SubmitEvent(ev *EventSeen) bool { return l.inbox.putEvent(ev) }

// Queued returns how many events wait for the loop.
func (l *Loop) Queued() int { return l.inbox.queued() }

// ErrRuntime is returned by Run when the runtime turns out to be another one
// than the state describes.
var ErrRuntime = store.ErrForeign

// Run drives the core until ctx ends, then writes what is pending and gives
// unused numbers back. It returns nil after a clean stop. It fails at once if
// the store may not be written, and later if the runtime is another than the
// one the state describes, or if the store says what nothing can change:
// store.ErrBatch, ErrConflict, ErrClosed, ErrLocked, and ErrDamaged if it is no
// store.Rescuer. While a store fails otherwise, readers are told from memory,
// and it is tried again for ever.
func (l *Loop) Run(ctx context.Context, hooks Hooks) error {
	l.hooks = hooks
	defer l.Close()
	if err := l.start(); err != nil {
		return err
	}
	l.apply(nil, l.core.Resume(l.now()))
	for ctx.Err() == nil {
		if err := l.turn(); err != nil {
			return errors.Join(err, l.abandon())
		}
		l.wait(ctx)
	}
	return l.stop()
}

// Close ends the readers of a Loop that is never run. Run does so itself.
func (l *Loop) Close() {
	l.feed.close()
	l.live.close()
	l.view.close()
}

// turn takes all that waits, steps, and commits if it is time to.
func (l *Loop) turn() error {
	l.goesOn()
	items := l.inbox.take()
	l.pressure.took(l.cfg.Clock.Mono(), len(items))
	for _, in := range items {
		if err := l.step(in); err != nil {
			return err
		}
	}
	if now := l.now(); l.wakeAt != 0 && now.Stamp.Mono >= l.wakeAt {
		l.wakeAt = 0
		in := &TimePassed{At: now.Stamp}
		l.apply(in, l.core.Step(now, in))
	}
	err := l.write()
	if l.failing() || !l.pending.changes() {
		l.pressure.wrote()
	}
	return err
}

// goesOn notes that the loop makes progress. It is called before and after each
// step that may take long, so that only one such step's time counts against it
// (Health.Progress).
func (l *Loop) goesOn() { l.progress.Store(int64(l.cfg.Clock.Mono())) }

func (l *Loop) step(in Input) error {
	if rt, ok := in.(*RuntimeSeen); ok {
		if err := l.checkRuntime(rt); err != nil {
			return err
		}
		if l.hooks.Runtime != nil {
			l.hooks.Runtime()
		}
	}
	out := l.core.Step(l.now(), in)
	l.health.seen(in)
	switch in := in.(type) { // applied: the calls are over
	case *ListSeen:
		l.endCalls(in)
	case *StatusSeen:
		l.calls.End(in.Call.Sent.Tick)
	}
	if sc, ok := in.(*StreamChanged); ok && l.hooks.Stream != nil {
		l.hooks.Stream(sc.State)
	}
	l.apply(in, out)
	return nil
}

func (l *Loop) endCalls(in *ListSeen) {
	l.calls.End(in.SandboxCall.Sent.Tick)
	l.calls.End(in.ContainerCall.Sent.Tick)
}

// checkRuntime compares the runtime's name with the one the state describes.
func (l *Loop) checkRuntime(rt *RuntimeSeen) error {
	if l.runtime.Name != "" && l.runtime.Name != rt.Name {
		return fmt.Errorf("runtime at %s calls itself %q, but the state describes %q: %w; use another state directory",
			l.runtime.Endpoint, rt.Name, l.runtime.Name, ErrRuntime)
	}
	if l.runtime.Name == "" {
		l.runtime.Name = rt.Name
		l.pending.meta = true
	}
	return nil
}

// apply hands on what a step decided.
func (l *Loop) apply(in Input, out Output) {
	l.pending.add(&out)
	l.live.decide(out.Changes.Events)
	if list, ok := in.(*ListSeen); ok && list.Scope.All() {
		l.pending.effects.relisted = list.SandboxCall.Sent.Mono
	}
	if out.Wake != 0 && (l.wakeAt == 0 || out.Wake < l.wakeAt) {
		l.wakeAt = out.Wake
	}
	if out.Step != 0 {
		l.health.stepped(out.Step, l.cfg.Clock.Wall(), int64(l.cfg.Clock.Mono()))
	}
	l.cfg.Observer.Stepped(in, &out)
	l.noteHabits(in, &out)
	if len(out.Actions) > 0 && l.hooks.Do != nil {
		l.hooks.Do(out.Actions)
	}
	if out.Relist != nil && l.hooks.Relisted != nil {
		l.hooks.Relisted(*out.Relist)
	}
	if out.Renewed && l.hooks.Renewed != nil {
		l.hooks.Renewed()
	}
	if out.Shrink && l.hooks.Shrink != nil {
		l.hooks.Shrink()
	}
}

// now is the moment of a step.
func (l *Loop) now() Now {
	stamp := l.cfg.Clock.Stamp(l.counter, timestamps.FromUnknown)
	return Now{Stamp: stamp, Running: l.running(stamp.Mono), OldestCall: l.calls.Oldest()}
}

// running is the agent's running time over all its lives, ns.
func (l *Loop) running(mono int64) int64 { return l.base.Running + mono - l.started }

// wait sleeps until there is something to do.
func (l *Loop) wait(ctx context.Context) {
	until := int64(l.cfg.Clock.Mono()) + int64(heartbeat)
	if l.wakeAt != 0 {
		until = min(until, l.wakeAt)
	}
	if at := l.writeAt(); at != 0 {
		until = min(until, at)
	}
	d := time.Duration(until) - l.cfg.Clock.Mono()
	if d <= 0 {
		return
	}
	timer := l.cfg.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-l.inbox.wake:
	}
}
