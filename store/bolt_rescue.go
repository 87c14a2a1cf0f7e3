package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

var _ Rescuer = (*Bolt)(nil)

// copyAtOnce is how many bytes of keys and values a rescue copies per
// transaction, so that it needs no more memory than a large commit does.
const copyAtOnce = 4 << 20

// inPlace fails with [ErrReplaced] unless the open file is still the one that
// has its name. A lock file that was deleted or replaced is only taken anew:
// bbolt's own lock keeps others out of a file that is in its place, and if
// another process has the lock file just now, that is one whose start is being
// refused. The next commit tries again.
func (b *Bolt) inPlace() error {
	if !b.lock.inPlace() {
		_ = b.relock()
	}
	named, err := os.Stat(b.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w: %w", ErrReplaced, err)
	case err != nil:
		return classify(err, nil)
	case !os.SameFile(b.self, named):
		return fmt.Errorf("%w: another file has its name", ErrReplaced)
	}
	return nil
}

// relock takes the lock file that has the name now, if that isn't ours.
func (b *Bolt) relock() error {
	if b.lock.inPlace() {
		return nil
	}
	lock, err := takeLock(b.cfg.lock())
	if err != nil {
		return err
	}
	_ = b.lock.release() // nobody can ask for that one any more
	b.lock = lock
	return nil
}

// Rescue implements [Rescuer]. It copies every value through a read
// transaction into a new file, which so holds what the operating system still
// has of writes that the disk refused, and needs room for it on the disk. It
// makes the state directory and the lock file anew if they are gone.
//
// The error wraps [ErrLocked] when another process has taken the state
// directory over, [ErrDamaged] when a value that could be read before can't be
// read any more, damaged journal entries aside, which readers are told of, or
// is otherwise of the kinds that [OpenBolt] gives. A file that was put in this
// one's place is set aside like a damaged one.
func (b *Bolt) Rescue(cause error) error {
	b.commit.Lock()
	defer b.commit.Unlock()
	if err := b.moveOver(); err != nil {
		return fmt.Errorf("state file %s: rescue after %q: %w", b.path, fmt.Sprint(cause), err)
	}
	return nil
}

// moveOver goes on with a copy of everything.
func (b *Bolt) moveOver() error {
	return b.exchange(func() (*Bolt, error) {
		var fresh *Bolt
		err := b.use(func() error {
			var err error
			fresh, err = makeFile(b.cfg, func(db *bolt.DB) error { return bolt.Compact(db, b.db, copyAtOnce) })
			return err
		})
		if err == nil && lost(fresh.damaged) > lost(b.damaged) {
			err = fmt.Errorf("%w: values that can't be copied: %d", ErrDamaged, lost(fresh.damaged))
			fresh.abandon(nil)
			_ = os.Remove(b.path + newSuffix)
		}
		return fresh, err
	}, false)
}

// lost counts damaged values outside of the journal.
func lost(bad []damage) (n int) {
	for _, d := range bad {
		if d.table != tableJournal {
			n++
		}
	}
	return n
}

// Renew implements [Rescuer]. Nothing is read from the old file, so it works
// with one that bbolt can't be let near any more; what bbolt has mapped of such
// a file stays mapped until the process ends. [Bolt.Aside] says where the old
// file is; the last two of those set aside are kept. The error is of the kinds
// that [OpenBolt] gives.
func (b *Bolt) Renew(cause error, first *Batch) error {
	sealed, err := sealBatch(first)
	if err != nil {
		return err
	}
	b.commit.Lock()
	defer b.commit.Unlock()
	err = b.exchange(func() (*Bolt, error) {
		return makeFile(b.cfg, func(db *bolt.DB) error {
			if err := fillFresh(db, b.cfg.Runtime); err != nil {
				return err
			}
			return db.Update(func(tx *bolt.Tx) error {
				_, err := sealed.apply(boltTables{tx}, journalState{}, b.cfg.Retention)
				return err
			})
		})
	}, true)
	if err != nil {
		return fmt.Errorf("state file %s: renewal after %q: %w", b.path, fmt.Sprint(cause), err)
	}
	b.publish()
	return nil
}

// Aside returns where the last Renew or Rescue put the file that was in place,
// "" if it put none aside.
func (b *Bolt) Aside() string {
	b.commit.Lock()
	defer b.commit.Unlock()
	return b.aside
}

// exchange goes on with the file that newFile makes. If setAside is set, the
// present file is kept; a file of somebody else in its place always is.
func (b *Bolt) exchange(newFile func() (*Bolt, error), setAside bool) error {
	switch {
	case b.lock == nil:
		return errReadOnly
	case b.isClosed():
		return ErrClosed
	}
	if err := os.MkdirAll(b.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("state directory %s: %w", b.cfg.Dir, classify(err, ErrUnwritable))
	}
	if err := b.relock(); err != nil {
		return err
	}
	keep, free, err := b.occupant(setAside)
	if err != nil {
		return err
	}
	defer free()
	fresh, err := newFile()
	if err != nil {
		return err
	}
	aside, err := fresh.install(keep)
	if err != nil {
		fresh.abandon(nil)
		return err
	}
	b.aside = aside
	b.adopt(fresh)
	return syncDir(b.cfg.Dir)
}

// occupant looks at what has the state file's name now: our own file, which is
// to be kept or not, nothing, or somebody else's, which is kept unless it is
// empty. A file that another process uses is an error; else it is locked until
// free is called.
func (b *Bolt) occupant(keepOwn bool) (keep bool, free func(), err error) {
	free = func() {}
	named, err := os.Stat(b.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, free, nil
	case err != nil:
		return false, free, classify(err, ErrUnwritable)
	case os.SameFile(b.self, named):
		return keepOwn, free, nil
	}
	held, err := holdFile(b.path, b.cfg.Timeout)
	if err != nil {
		return false, free, err
	}
	if err := held.own(b.cfg.Timeout); err != nil {
		held.release()
		return false, free, err
	}
	return named.Size() > 0, held.release, nil
}

// adopt takes over the file of another Bolt and closes its own. Readers are
// waited for, so none of them loses its file.
func (b *Bolt) adopt(fresh *Bolt) {
	b.mu.Lock()
	db, file, broken := b.db, b.file, b.broken.Load() != nil
	b.db, b.file = fresh.db, fresh.file
	b.broken.Store(nil)
	b.mu.Unlock()
	b.self, b.state, b.stale, b.damaged, b.runtime = fresh.self, fresh.state, false, fresh.damaged, fresh.runtime
	// The file is done with: if it can't be closed properly, so be it.
	_ = closeBolt(db, file, broken)
}

func (b *Bolt) isClosed() bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.closed
}
