package pleg

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plegd/plegd/arbiter"
)

// sourceGrace is how long Run waits for calls and streams to end after its
// context has ended, before it writes the state without them. A runtime that
// hangs and ignores cancellation must not keep the agent from stopping.
const sourceGrace = time.Second

// firstSubscription is how long the first relist waits for the event stream.
// Runtimes refuse or begin to send within some ms, and a silent one counts as
// up after evented.DefaultGrace.
const firstSubscription = time.Second

// Run works until ctx ends, then stops its parts, writes what is pending and
// releases the state. It returns nil after a clean stop; what could not be
// written is an error, and so are ErrUnsupported in ModeEvented, a runtime
// that is not the one that the state describes (store.ErrForeign), a state file
// that turns out to be damaged (store.ErrDamaged; the next New sets it aside),
// and ErrRan.
// It returns within about two seconds of ctx's end, whatever the runtime does.
func (g *Generator) Run(ctx context.Context) error {
	if g.ran.Swap(true) {
		return ErrRan
	}
	sources, ctxSources := errgroup.WithContext(ctx)
	loopCtx, stopLoop := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoop()

	var loopErr error
	loopDone := make(chan struct{})
	go func() {
		defer close(loopDone)
		loopErr = g.loop.Run(loopCtx, arbiter.Hooks{
			Do: g.relister.Do, Relisted: g.relister.Judged, Shrink: g.relister.Shrink,
			Stream: func(s arbiter.StreamState) {
				g.relister.StreamChanged(s == arbiter.StreamUp)
				g.judgeOnce.Do(func() { close(g.judged) })
			},
			Renewed: g.relister.Renew,
			Runtime: g.runtime.admit,
		})
	}()
	sources.Go(func() error { return g.watchRuntime(ctxSources) })
	sources.Go(func() error { return g.onceKnown(ctxSources, g.relistOnceSubscribed) })
	if g.watcher != nil {
		sources.Go(func() error { return g.onceKnown(ctxSources, g.watcher.Run) })
	}
	sources.Go(func() error { return g.watchConditions(ctxSources) })
	// The loop's end is the end of everything.
	sources.Go(func() error {
		select {
		case <-loopDone:
			return errLoopEnded
		case <-ctxSources.Done():
			return nil
		}
	})
	sourcesErr := g.waitSources(ctxSources, sources)
	g.ending.Store(int32(EndingWrites))
	stopLoop()
	<-loopDone
	if loopErr == nil {
		g.ending.Store(int32(EndingCloses))
	}
	if errors.Is(sourcesErr, errLoopEnded) {
		sourcesErr = nil // loopErr says why
	}
	return errors.Join(sourcesErr, loopErr, g.release())
}

// Ending is how far the end of Run has come.
type Ending int32

// The steps of an end, in their order.
const (
	NotEnding    Ending = iota // Run was not asked to end, or not called
	EndingCalls                // waits for calls to the runtime and the stream
	EndingWrites               // waits for what is new to be written
	EndingCloses               // all is written; lets go of the connection and of the state
)

// String says what is waited for.
func (e Ending) String() string {
	return map[Ending]string{
		NotEnding: "nothing", EndingCalls: "calls to the runtime to end", EndingWrites: "the state to be written",
		EndingCloses: "the state file to be closed",
	}[e]
}

// Ending returns how far the end of Run has come, for whoever finds that it
// takes too long. What a failed write leaves behind stays EndingWrites.
func (g *Generator) Ending() Ending { return Ending(g.ending.Load()) }

// onceKnown runs a source once the arbiter knows who answers at the endpoint. The
// state of one runtime must not be touched by the lists of another, and the
// arbiter judges what it is told by the habits of the runtime that tells it.
func (g *Generator) onceKnown(ctx context.Context, run func(context.Context) error) error {
	select {
	case <-ctx.Done():
		return nil
	case <-g.runtime.known:
		return run(ctx)
	}
}

// relistOnceSubscribed runs the relister once the first try to subscribe has
// come to something: subscribe first, list second. A runtime that has kept
// events for us sends them at once, and then what a list lacks is already
// explained; without them a death would be told without its code. It doesn't
// wait longer than firstSubscription, whatever the runtime does.
func (g *Generator) relistOnceSubscribed(ctx context.Context) error {
	if g.watcher != nil {
		timer := g.cfg.Clock.NewTimer(firstSubscription)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return nil
		case <-g.judged:
		case <-timer.C:
		}
	}
	return g.relister.Run(ctx)
}

// errLoopEnded stops the sources when the loop has ended by itself.
var errLoopEnded = errors.New("arbiter ended")

// waitSources waits for the sources, but no longer than sourceGrace after
// their context has ended; what hangs then is cut off with the connection.
func (g *Generator) waitSources(ctx context.Context, sources *errgroup.Group) error {
	done := make(chan error, 1)
	go func() { done <- sources.Wait() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	g.ending.Store(int32(EndingCalls))
	timer := g.cfg.Clock.NewTimer(sourceGrace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		g.cfg.Logger.Warn("calls to the runtime did not end in time; cutting the connection")
		_ = g.client.Close() // what it says is of no use now
		return <-done
	}
}
