package pleg

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/timestamps"
)

const (
	// versionRetryFirst and versionRetryMost space the tries of Version while
	// the runtime does not answer. The relister tries to connect as well, so
	// this only has to follow.
	versionRetryFirst = 200 * time.Millisecond
	versionRetryMost  = 5 * time.Second
)

// runtimeWatch knows who answers at the endpoint. It asks again after every
// connection that was made, since only then can it be somebody else.
type runtimeWatch struct {
	connected chan struct{} // capacity 1

	mu      sync.Mutex
	version cri.RuntimeVersion
	err     string // why Version last failed, "" when it answered
}

func (w *runtimeWatch) notice() {
	select {
	case w.connected <- struct{}{}:
	default:
	}
}

func (w *runtimeWatch) get() (v cri.RuntimeVersion, err string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.version, w.err
}

func (w *runtimeWatch) set(v cri.RuntimeVersion, err string) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	if err != "" || w.version == v {
		return false
	}
	w.version = v
	return true
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
	delays := backoff.NewExponentialBackOff(backoff.WithInitialInterval(versionRetryFirst),
		backoff.WithMaxInterval(versionRetryMost), backoff.WithMaxElapsedTime(0))
	for {
		v, err := g.client.Version(ctx)
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil:
			if g.runtime.set(v, "") {
				g.log().Info("runtime answers", "endpoint", g.client.Path(), "runtime", v.Name, "version", v.Version)
			}
			g.loop.Submit(&arbiter.RuntimeSeen{At: g.loop.Calls().Answered(timestamps.FromUnknown), Name: v.Name, Version: v.Version})
			return true
		}
		g.runtime.set(v, err.Error())
		timer := g.cfg.Clock.NewTimer(delays.NextBackOff())
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// admitStream refuses the event stream of containerd 1.7: its subscribers
// share one channel, so each event that we read is one that the kubelet or
// crictl does not get (containerd#7318, fixed in 2.0). containerd 1.6 has no
// stream and says so itself.
func (g *Generator) admitStream(ctx context.Context) error {
	v, err := g.client.Version(ctx)
	if err != nil {
		return nil //nolint:nilerr // then opening the stream fails too, and says why
	}
	if v.Name == "containerd" && strings.HasPrefix(strings.TrimPrefix(v.Version, "v"), "1.7.") {
		return fmt.Errorf("containerd %s gives each event to one subscriber only, so reading them would take them from others", v.Version)
	}
	return nil
}
