package store

import "github.com/plegd/plegd/timestamps"

// Snapshot is everything but the journal, as loaded at a start.
type Snapshot struct {
	Meta       Meta
	Records    []*Record // sorted by kind (sandboxes first), then id
	Tombstones []*Record // sorted by id
	Asks       []*Ask    // sorted by id
	Dropped    int       // entries that were damaged and left out
}

// Batch is what one transaction changes. A batch is written whole or not at
// all, and writing the same batch again changes nothing (rule D3), so a commit
// whose outcome is unknown is simply tried again. Deletions come before puts:
// what a batch both deletes and puts is there afterwards.
//
// The events are all of the meta's epoch. A batch with a new epoch drops the
// journal of the old one, whose positions can't be told apart by number.
type Batch struct {
	Meta       Meta      // replaces the stored one
	Records    []*Record // put
	Gone       []Key     // records to delete
	Tombstones []*Record // put
	Forgotten  []string  // ids of tombstones to delete
	Asks       []*Ask    // put
	Answered   []string  // ids whose ask is to be deleted
	Events     []Event   // appended; numbers grow and are above all stored ones, unless the batch is a retry
}

// Key names a record.
type Key struct {
	Kind Kind
	ID   string
}

// Journal describes the stored part of the journal.
type Journal struct {
	Epoch       timestamps.Epoch
	First, Last uint64 // numbers of the oldest and newest entry; both 0 when empty
	Entries     int
	Bytes       int64 // encoded size of the entries
}

// Retention bounds the journal: an entry is dropped when any bound says so.
// Zero fields mean the defaults.
type Retention struct {
	Age     int64 // ns of the agent's running time
	Entries int
	Bytes   int64
}

// The default bounds of the journal (rule D4).
const (
	DefaultAge     = 24 * 3600 * 1_000_000_000
	DefaultEntries = 50_000
	DefaultBytes   = 64 << 20
)

// Defaulted returns r with zero fields replaced by the defaults.
func (r Retention) Defaulted() Retention {
	if r.Age == 0 {
		r.Age = DefaultAge
	}
	if r.Entries == 0 {
		r.Entries = DefaultEntries
	}
	if r.Bytes == 0 {
		r.Bytes = DefaultBytes
	}
	return r
}

// Store keeps the state. Commit and Load are called by one owner at a time;
// Events and Journal may be called by any goroutine at any time. Readers see
// only what a Commit that returned nil has written.
type Store interface {
	// Load returns the whole state but the journal. Damaged entries are left
	// out and counted.
	Load() (*Snapshot, error)
	// Commit writes one batch in one durable transaction and applies the
	// retention. After an error its outcome is unknown; the same batch may be
	// committed again. ErrFull is wrapped when there was no room. ErrBatch and
	// ErrConflict mean that nothing was written and never will be.
	Commit(*Batch) error
	// Events returns up to limit entries with numbers above after, oldest
	// first, and at most about 1 MiB of them, in a read transaction that ends
	// with the call. After a number beyond the last there are none. It fails
	// with ErrExpired when the entry after+1 is lost: when the next stored one
	// is neither after+1 itself nor a SequenceSkipped entry that covers it. A
	// loss further on ends the answer before it. The retention never drops the
	// newest entry, so a reader that missed everything is told so.
	Events(after uint64, limit int) ([]Event, error)
	// Journal describes the journal.
	Journal() Journal
	// Close releases the store. It is safe to call more than once.
	Close() error
}

// Rescuer is what a Store may offer beside: ways on after a Commit that failed
// and that no further try in place will mend (rule D3). Rescue and Renew are
// called by the owner of Commit, never while a Commit runs; Events and Journal
// may be called meanwhile, and each sees the store either before or after.
//
//	Commit's error      then
//	ErrIO               try again; if that goes on, Rescue
//	ErrReplaced         Rescue
//	ErrDamaged          Renew
//	Rescue's error
//	ErrLocked           end: another process has taken the state over
//	ErrDamaged          Renew
//	any other           the store is as it was; try again later
type Rescuer interface {
	// Rescue writes everything that the store holds, that of Commits included
	// whose outcome is unknown, to a new place and goes on with that. The same
	// batch is then committed again. cause is what Commit said. After an error
	// the store is as it was.
	Rescue(cause error) error
	// Renew keeps the old state aside as damaged and goes on with one that holds
	// the first batch and nothing else: a new epoch, then, and the whole state.
	// There is no moment at which another start would find less. cause is what
	// Commit or Rescue said. After an error the store is as it was.
	Renew(cause error, first *Batch) error
}
