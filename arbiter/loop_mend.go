package arbiter

import (
	"errors"
	"fmt"
	"time"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
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
	fresh, first := l.anew()
	err := r.Renew(cause, first)
	l.goesOn()
	switch {
	case err == nil:
		l.renewed(cause, fresh)
	case errors.Is(err, store.ErrLocked), errors.Is(err, store.ErrClosed):
		return err
	default:
		l.trouble.mending = err
	}
	return nil
}

// anew is what a store begins with that is begun anew: the whole state, in one
// transaction, since a kill must leave all of it or the old file. The journal is
// lost, and with it the epoch. An epoch of which no number was ever given out
// has lost nothing and stays, so that readers who stand at its beginning can go
// on.
func (l *Loop) anew() (numbers, *store.Batch) {
	fresh := numbers{epoch: l.numbers.epoch, alloc: timestamps.NewAllocator(1, timestamps.Block)}
	if l.numbers.alloc.Next() > 1 {
		fresh.epoch = newEpoch()
	}
	first := l.core.Missing(&store.Snapshot{})
	first.Meta = l.meta(timestamps.Block)
	first.Meta.Epoch, first.Meta.Last = fresh.epoch, 0
	return fresh, &first
}

// renewed goes on with a store that was begun anew.
func (l *Loop) renewed(cause error, fresh numbers) {
	aside := ""
	if s, ok := l.cfg.Store.(interface{ Aside() string }); ok {
		aside = s.Aside()
	}
	l.cfg.Log.Error("state is lost; it is written anew from memory", "set_aside", aside, "reason", cause)
	l.health.storeReset(cause, aside, l.cfg.Clock.Wall())
	l.trouble.in = inEmpty
	if fresh.epoch != l.numbers.epoch {
		l.beginEpoch(fresh, "the journal is lost")
		return
	}
	l.numbers = fresh
	l.trouble.batch = nil // made for the store before
}
