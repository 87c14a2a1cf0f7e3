package arbiter

import (
	"context"
	"fmt"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// decisive are the questions whose answer may change what a pod is told to be.
const decisive = store.ReasonDetails | store.ReasonConfirm | store.ReasonRegress | store.ReasonRemoval | store.ReasonContradict

// settled reports whether no answer about the pod is still to come that a list
// or a look has made necessary: what it lacked may be removed, what it showed
// exited may have a code. A question whose call has failed is not waited for;
// the error stands beside the status. The caller holds the lock.
func (v *view) settled(key string) bool {
	for id := range v.pods[key] {
		if a := v.asks[id]; a != nil && a.Why&decisive != 0 && a.Fails == 0 {
			return false
		}
	}
	return true
}

// PodNewer returns what is known of a pod by a call that was sent after this
// one began, and has the pod looked at for that. What that look lacks or shows
// changed is found out before it returns. It waits until ctx ends. The
// error is ErrNoPod when the pod is not there by then, ctx's own, or
// ErrStopped. There is no wall time in the comparison (rule T1).
func (l *Loop) PodNewer(ctx context.Context, key string) (Pod, error) {
	at := l.cfg.Clock.Stamp(l.counter, timestamps.FromUnknown)
	l.Submit(&Requested{At: at, PodKey: key})
	for {
		l.view.mu.RLock()
		changed, ended := l.view.changed, l.view.ended
		p, ok := l.view.pod(key)
		fresh := p.Fresh > at.Tick && l.view.settled(key)
		l.view.mu.RUnlock()
		switch {
		case fresh && ok:
			return p, nil
		case fresh:
			return Pod{}, fmt.Errorf("pod %.80q: %w", key, ErrNoPod)
		case ended:
			return Pod{}, ErrStopped
		}
		select {
		case <-ctx.Done():
			return Pod{}, fmt.Errorf("pod %.80q: %w", key, ctx.Err())
		case <-changed:
		}
	}
}

// WaitFresh waits until a full list that was sent after the tick has been
// applied and can be read. The error is ctx's, or ErrStopped.
func (l *Loop) WaitFresh(ctx context.Context, after timestamps.Tick) error {
	for {
		l.view.mu.RLock()
		changed, ended, fresh := l.view.changed, l.view.ended, l.view.freshAll
		l.view.mu.RUnlock()
		switch {
		case fresh > after:
			return nil
		case ended:
			return ErrStopped
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
