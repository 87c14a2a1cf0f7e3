package arbiter

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/plegd/plegd/store"
)

// trouble is what the loop knows of a store that fails, zero while it works.
// Readers are then told from memory: records are in the view, events in the
// feed, and all that is to be written later follows from those and the core.
// So nothing grows with how long it takes but the events, which are bounded.
type trouble struct {
	cause   error        // of the last try
	batch   *store.Batch // the one whose outcome is not known, nil where a reservation or a reading failed
	tries   int          // that have failed in a row
	mending error        // why the store could not be mended either
	in      mendedTo     // what it fails in
	at      int64        // monotonic ns of the next try
	why     string       // the last new epoch began, as was logged
	backoff *backoff.ExponentialBackOff
}

const (
	retryFirst = 100 * time.Millisecond // a busy disk is over that soon
	retryMost  = 10 * time.Second       // a full one is noticed to be free again within that
)

// failing reports whether the last try to write failed.
func (l *Loop) failing() bool { return l.trouble.cause != nil }

// hopeless lists what a store says when nothing that the loop can do helps. A
// batch that was refused was made from a state that can't be trusted: going on
// would only keep for ever from the store what is new. A state that is locked
// was taken over by another process.
var hopeless = []error{store.ErrBatch, store.ErrConflict, store.ErrClosed, store.ErrLocked, errNumbers}

// isHopeless: damage is, unless the store can begin anew.
func (l *Loop) isHopeless(err error) bool {
	if errors.Is(err, store.ErrDamaged) && l.rescuer() == nil {
		return true
	}
	return slices.ContainsFunc(hopeless, func(target error) bool { return errors.Is(err, target) })
}

// failed takes note of a write that failed and sets the time of the next try.
// It returns an error if there is none to be.
func (l *Loop) failed(err error) error {
	mono := int64(l.cfg.Clock.Mono())
	shown := err
	if why := l.trouble.mending; why != nil {
		shown = fmt.Errorf("%w (and it can't be mended: %w)", err, why)
	}
	l.health.storeFailed(shown, l.cfg.Clock.Wall())
	t := &l.trouble
	t.cause = err // before the end too: what failed may not be given back
	if l.isHopeless(err) {
		return fmt.Errorf("state can't be written any more: %w", err)
	}
	if t.backoff == nil {
		t.backoff = backoff.NewExponentialBackOff(backoff.WithInitialInterval(retryFirst),
			backoff.WithMaxInterval(retryMost), backoff.WithRandomizationFactor(0), backoff.WithMaxElapsedTime(0))
	}
	t.tries++
	t.at = mono + int64(t.backoff.NextBackOff())
	return nil
}

// tellPending tells readers from memory what the steps since have decided.
func (l *Loop) tellPending() {
	if !l.pending.changes() && l.pending.effects.empty() {
		return
	}
	for _, p := range l.pending.split() {
		l.tell(&p)
	}
}

// tell publishes a part that isn't written.
func (l *Loop) tell(p *part) {
	if !p.numbered {
		l.number(p.batch.Events)
	}
	l.publish(p, true)
}

// retry tries to write what readers were told from memory, after what can be
// done for a store that goes on failing. The error is one that no further try
// would change.
func (l *Loop) retry() error {
	if err := l.mend(); err != nil {
		return fmt.Errorf("state can't be written any more: %w", err)
	}
	return l.catchUp()
}

// catchUp tries the failed batch again, unchanged, since whether it was written
// is not known (rule D3), and if that works writes all that the store lacks.
func (l *Loop) catchUp() error {
	var err error
	if b := l.trouble.batch; b != nil {
		if err = l.commitReserving(b); err == nil {
			l.feed.wrote(len(b.Events))
			l.trouble.batch = nil
		}
	} else {
		err = l.reserve(1)
	}
	if err == nil {
		err = l.writeMissing()
	}
	if err != nil {
		return l.failed(err)
	}
	l.trouble = trouble{}
	l.health.storeWorks()
	l.tellSkip()
	return nil
}

// writeMissing writes the events that were told from memory, under the numbers
// that they were told with, and what the stored state lacks compared with the
// core's. All that the core has decided has been told before.
func (l *Loop) writeMissing() error {
	l.goesOn()
	snap, err := l.cfg.Store.Load()
	l.goesOn()
	if err != nil {
		return err
	}
	var missing pending
	missing.add(&Output{Changes: l.core.Missing(snap)})
	missing.events = l.feed.toWrite()
	if !missing.changes() {
		return nil
	}
	parts := missing.split()
	for i := range parts {
		p := &parts[i]
		p.batch.Events = asStored(p.batch.Events)
		l.complete(p)
		if err := l.commitReserving(&p.batch); err != nil {
			l.trouble.batch = &p.batch
			return err
		}
		l.feed.wrote(len(p.batch.Events))
		l.goesOn()
	}
	return nil
}
