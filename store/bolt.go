package store

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// journalFill is how full bbolt packs the journal's pages. Its keys only grow,
// so half-empty pages, bbolt's default, would stay half empty.
const journalFill = 0.95

// Bolt is a Store in a bbolt file. Load and Commit are called by one owner at
// a time; all other methods may be called by any goroutine at any time.
type Bolt struct {
	path string
	cfg  BoltConfig // without a meaning when opened for reading

	mu     sync.RWMutex // held for reading while db is used, for writing to close or exchange it
	db     *bolt.DB
	file   *os.File // bbolt's own handle, for when bbolt can't close it any more
	closed bool

	commit  sync.Mutex   // one writer; guards what follows
	lock    *lockFile    // nil when opened for reading
	self    os.FileInfo  // of file, to tell whether it still has its name
	aside   string       // where Renew put the last file
	state   journalState // as the last successful commit left it
	stale   bool         // a commit failed: what the file holds is unknown
	damaged []damage     // single values to be dropped by the next commit
	runtime RuntimeID    // as stored when the file was opened

	journal atomic.Pointer[Journal] // state.Journal, for readers
	broken  atomic.Pointer[error]   // once set, bbolt is not touched again
}

var _ Store = (*Bolt)(nil)

// Load implements [Store].
func (b *Bolt) Load() (*Snapshot, error) {
	var s *Snapshot
	err := b.view(func(r reader) error {
		var err error
		s, _, err = readSnapshot(r)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("state file %s: %w", b.path, err)
	}
	return s, nil
}

// Commit implements [Store]. The error wraps [ErrFull], [ErrUnwritable],
// [ErrIO], [ErrReplaced], [ErrDamaged], [ErrClosed], [ErrBatch] or [ErrConflict]
// where one of them fits; the last two mean that nothing was written and that
// trying again is useless. What can be done after the others, see [Rescuer].
func (b *Bolt) Commit(batch *Batch) error {
	sealed, err := sealBatch(batch)
	if err != nil {
		return err
	}
	b.commit.Lock()
	defer b.commit.Unlock()
	var next journalState
	err = b.update(func(w writer) error {
		state := b.state
		if b.stale {
			meta, err := readMeta(w)
			if err != nil {
				return err
			}
			state = countJournal(w, meta)
		}
		if err := b.dropDamaged(w); err != nil {
			return err
		}
		var err error
		next, err = sealed.apply(w, state, b.cfg.Retention)
		return err
	})
	if err == nil {
		// After the write, so that what is acknowledged was in its place.
		err = b.inPlace()
	}
	if err != nil {
		b.stale = true
		return fmt.Errorf("state file %s: %w", b.path, err)
	}
	b.state, b.stale, b.damaged = next, false, nil
	b.publish()
	return nil
}

// publish shows readers a copy of the journal's description.
func (b *Bolt) publish() {
	j := b.state.Journal
	b.journal.Store(&j)
}

// dropDamaged deletes the single values that were unreadable at the start. A
// damaged journal entry stays, since it marks a loss that readers must be told
// of, until the retention drops it.
func (b *Bolt) dropDamaged(w writer) error {
	for _, d := range b.damaged {
		if d.table == tableJournal {
			continue
		}
		if err := w.delete(d.table, d.key); err != nil {
			return err
		}
	}
	return nil
}

// Events implements [Store].
func (b *Bolt) Events(after uint64, limit int) ([]Event, error) {
	var events []Event
	j := b.Journal() // before the transaction begins, which so holds at least as much
	err := b.view(func(r reader) error {
		var err error
		events, err = readEvents(r, j, after, limit)
		return err
	})
	return events, err
}

// Journal implements [Store]. It takes no lock.
func (b *Bolt) Journal() Journal { return *b.journal.Load() }

// PodOf returns where a container belongs, false when neither a record nor a
// tombstone of it is stored.
func (b *Bolt) PodOf(container string) (Placement, bool) {
	var p Placement
	var ok bool
	err := b.view(func(r reader) error {
		p, ok = readPlacement(r, container)
		return nil
	})
	return p, ok && err == nil
}

// Containers returns the ids of up to limit containers, stored or removed
// lately, that begin with a prefix, in order.
func (b *Bolt) Containers(prefix string, limit int) ([]string, error) {
	var ids []string
	err := b.view(func(r reader) error {
		ids = readContainers(r, prefix, limit)
		return nil
	})
	return ids, err
}

// Path returns the path of the state file.
func (b *Bolt) Path() string { return b.path }

// Close implements [Store]. It waits for reads and a commit in progress.
func (b *Bolt) Close() error {
	b.commit.Lock()
	defer b.commit.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	err := closeBolt(b.db, b.file, b.broken.Load() != nil)
	if b.lock != nil {
		err = errors.Join(err, b.lock.release())
	}
	if err != nil {
		return fmt.Errorf("state file %s: close: %w", b.path, err)
	}
	return nil
}

// closeBolt closes the database. A broken one may hold its own locks for ever,
// so of that only the file is let go, by hand: the memory map keeps the file
// description alive and with it the flock, which must be given up explicitly.
func closeBolt(db *bolt.DB, file *os.File, broken bool) error {
	if !broken && db != nil {
		err := guard(db.Close)
		if !errors.Is(err, ErrDamaged) {
			return err
		}
	}
	if file == nil {
		return nil
	}
	_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
	return file.Close()
}

// view runs fn in a read transaction.
func (b *Bolt) view(fn func(reader) error) error {
	return b.use(func() error {
		return b.db.View(func(tx *bolt.Tx) error { return fn(boltTables{tx}) })
	})
}

// update runs fn in a write transaction.
func (b *Bolt) update(fn func(writer) error) error {
	if b.lock == nil {
		return errReadOnly
	}
	return b.use(func() error {
		return classify(b.db.Update(func(tx *bolt.Tx) error { return fn(boltTables{tx}) }), nil)
	})
}

// use runs fn while the database is open and sound. A panic in it, which
// damage that appears during the run causes, ends the use of the file.
func (b *Bolt) use(fn func() error) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return ErrClosed
	}
	if err := b.broken.Load(); err != nil {
		return *err
	}
	err := guard(fn)
	if errors.Is(err, ErrDamaged) {
		b.broken.CompareAndSwap(nil, &err)
	}
	return err
}

// boltTables is one bbolt transaction.
type boltTables struct{ tx *bolt.Tx }

var _ writer = boltTables{}

func (b boltTables) bucket(t table) *bolt.Bucket {
	bucket := b.tx.Bucket([]byte(t.String()))
	if bucket == nil {
		panic("bucket " + t.String() + " is missing") // caught by guard: the file is damaged
	}
	if t == tableJournal {
		bucket.FillPercent = journalFill
	}
	return bucket
}

func (b boltTables) get(t table, key []byte) []byte { return b.bucket(t).Get(key) }

func (b boltTables) each(t table, from []byte, visit func(key, value []byte) bool) {
	c := b.bucket(t).Cursor()
	for k, v := c.Seek(from); k != nil; k, v = c.Next() {
		if !visit(k, v) {
			return
		}
	}
}

func (b boltTables) put(t table, key, value []byte) error { return b.bucket(t).Put(key, value) }
func (b boltTables) delete(t table, key []byte) error     { return b.bucket(t).Delete(key) }

func (b boltTables) clear(t table) error {
	if err := b.tx.DeleteBucket([]byte(t.String())); err != nil {
		return err
	}
	_, err := b.tx.CreateBucket([]byte(t.String()))
	return err
}
