package pleg

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/evented"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/note"
	"github.com/plegd/plegd/internal/retry"
	"github.com/plegd/plegd/timestamps"
)

const (
	// versionRetryFirst and versionRetryMost space the tries of Version while
	// the runtime does not answer. Nothing else is asked before it does, and a
	// try that finds nobody costs nothing.
	versionRetryFirst = 200 * time.Millisecond
	versionRetryMost  = time.Second
)

// runtimeWatch knows who answers at the endpoint. It asks again after every
// connection that was made, since only then can it be somebody else.
type runtimeWatch struct {
	connected chan struct{} // capacity 1
	known     chan struct{} // closed when the arbiter has found the runtime to be the right one

	mu      sync.Mutex
	version cri.RuntimeVersion
	err     string // why Version last failed, "" when it answered
}

func (w *runtimeWatch) init() {
	w.connected, w.known = make(chan struct{}, 1), make(chan struct{})
}

func (w *runtimeWatch) notice() {
	note.Leave(w.connected)
}

func (w *runtimeWatch) get() (v cri.RuntimeVersion, err string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version, w.err
}

// answered takes an answer to Version. It reports whether it says something new.
func (w *runtimeWatch) answered(v cri.RuntimeVersion) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	news = w.version != v
	w.version, w.err = v, ""
	return news
}

// failed takes a failure of Version. The conditions of health tell of it, and
// once there was an answer the relists do.
func (w *runtimeWatch) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err.Error()
}

// admit lets the sources begin. Only the arbiter's loop calls it.
func (w *runtimeWatch) admit() {
	select {
	case <-w.known:
	default:
		close(w.known)
	}
}

// watchRuntime asks for the version at the start and after each connection,
// until ctx ends.
func (g *Generator) watchRuntime(ctx context.Context) error {
	for {
		if !g.askVersion(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.runtime.connected:
		}
	}
}

// askVersion asks until there is an answer. It reports false when ctx ended.
func (g *Generator) askVersion(ctx context.Context) bool {
	delays := retry.Delays(versionRetryFirst, versionRetryMost)
	random := g.cfg.random("version")
	if random == nil {
		random = rand.Float64
	}
	for {
		p, err := g.client.Identify(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil:
			g.identified(p)
			return true
		}
		g.runtime.failed(err)
		note.Take(g.runtime.connected) // the call itself may have made that connection
		timer := g.cfg.Clock.NewTimer(retry.Jittered(delays.NextBackOff(), random()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		case <-g.runtime.connected: // somebody is there now
			timer.Stop()
		}
	}
}

// identified takes an answer to Version. What goes out on that connection from
// now on is submitted after the answer, so the arbiter judges it as the answer
// says. To another runtime than the one before nothing goes out at all; the
// arbiter ends over it.
func (g *Generator) identified(p cri.Peer) {
	before, _ := g.runtime.get()
	news := g.runtime.answered(p.RuntimeVersion)
	if news {
		g.log().Info("runtime answers", "endpoint", g.client.Path(), "runtime", p.Name, "version", p.Version)
	}
	g.loop.Submit(&arbiter.RuntimeSeen{At: g.loop.Calls().Answered(timestamps.FromUnknown), Name: p.Name, Version: p.Version})
	if before.Name != "" && before.Name != p.Name {
		return
	}
	p.Accept()
	if news && g.watcher != nil {
		g.watcher.Reprobe() // what was found out of the version before says nothing of this one
	}
}

// openStream opens the stream on the connection that admitStream was about.
func (g *Generator) openStream(ctx context.Context) (evented.Stream, error) {
	return g.client.EventsOf(ctx, g.admitted)
}

// admitStream refuses the event stream of a runtime whose subscribers compete
// (the arbiter's table of habits knows): each event that we read is one that the
// kubelet or crictl does not get. A runtime without a stream says so itself.
// While it is not known who answers, nothing is opened: a subscription can't be
// taken back by the time it is known.
func (g *Generator) admitStream(ctx context.Context) error {
	v, err := g.client.Identify(ctx)
	if err != nil {
		return fmt.Errorf("whether the runtime's events may be read is not known: %w", err)
	}
	if arbiter.HabitsOf(v.Name, v.Version).Stream == arbiter.StreamCompeting {
		return fmt.Errorf("%w: %s %s gives each event to one subscriber only, so reading them would take them from others",
			evented.ErrRefused, v.Name, v.Version)
	}
	g.admitted = v
	return nil
}
