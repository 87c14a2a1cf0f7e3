package arbiter

import (
	"errors"
	"fmt"
	"time"

	"github.com/plegd/plegd/store"
)

// mendGap: a store is copied or begun anew at most this often. Both write all
// of it, on a disk that has just failed.
const mendGap = 10 * time.Second

// mendedTo is in what a store goes on that has failed and not worked since.
type mendedTo uint8

const (
	inPlace mendedTo = iota
	inCopy
	// inEmpty: begun anew. If that fails too it is only copied, which costs
	// little and loses nothing; to begin anew each time would throw out what was
	// set aside, and begin an epoch.
	inEmpty
)

// rescuer returns the store as one that can be mended, nil if it can't.
func (l *Loop) rescuer() store.Rescuer {
	r, _ := l.cfg.Store.(store.Rescuer)
	return r
}

// mend does what can be done for a store that goes on failing (rule D3): after
// an I/O error that one more try in place has not mended, and when the file was
// deleted or replaced, it goes on in a copy; if that can't be made, or fails
// too, or the file is damaged, in an empty one under a new epoch. A full disk
// or one that is mounted read-only is waited for. The error is one that no
// further try would change; after any other the store is as it was.
func (l *Loop) mend() error {
	r, cause := l.rescuer(), l.trouble.cause
	mono := l.cfg.Clock.Mono()
	damaged, replaced := errors.Is(cause, store.ErrDamaged), errors.Is(cause, store.ErrReplaced)
	switch {
	case r == nil, errors.Is(cause, store.ErrFull), errors.Is(cause, store.ErrUnwritable):
		return nil
	case !damaged && !replaced && l.trouble.tries < 2:
		return nil
	case l.mended != 0 && mono-l.mended < mendGap:
		return nil
	}
	l.mended, l.trouble.mending = max(mono, 1), nil
	// A copy in which writing goes on failing is not copied again; of one that
	// was replaced nothing is known yet.
	if !damaged && (replaced || l.trouble.in != inCopy) {
		l.goesOn()
		err := r.Rescue(cause)
		l.goesOn()
		switch {
		case err == nil:
			if l.trouble.in == inPlace {
				l.trouble.in = inCopy
			}
			l.cfg.Log.Warn("the state goes on in a copy", "cause", cause)
			return nil
		case errors.Is(err, store.ErrLocked), errors.Is(err, store.ErrClosed):
			return err
		case errors.Is(err, store.ErrFull), errors.Is(err, store.ErrUnwritable):
			l.trouble.mending = err // there is no place for an empty file either
			return nil
		}
		cause = fmt.Errorf("%w, and it can't be copied: %w", cause, err)
	}
	l.goesOn()
	err := r.Renew(cause)
	l.goesOn()
	switch {
	case err == nil:
		l.renewed(cause)
	case errors.Is(err, store.ErrLocked), errors.Is(err, store.ErrClosed):
		return err
	default:
		l.trouble.mending = err
	}
	return nil
}

// renewed goes on with an empty store. The state is in the core and written
// again as a whole; the journal is lost, and with it the epoch. An epoch of
// which no number was ever given out has lost nothing and stays, so that readers
// who stand at its beginning can go on.
func (l *Loop) renewed(cause error) {
	aside := ""
	if s, ok := l.cfg.Store.(interface{ Aside() string }); ok {
		aside = s.Aside()
	}
	l.cfg.Log.Error("state is lost; it is written anew from memory", "set_aside", aside, "reason", cause)
	l.health.storeReset(cause, aside, l.cfg.Clock.Wall())
	l.trouble.in = inEmpty
	if l.numbers.alloc.Next() > 1 {
		l.beginEpoch("the journal is lost")
		return
	}
	l.numbers = unnamedNumbers(l.numbers.epoch)
	l.trouble.batch = nil // made for the store before
}
