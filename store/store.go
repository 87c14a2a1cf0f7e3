package store

import (
	"errors"

	"github.com/plegd/plegd/timestamps"
)

// The errors that callers can tell apart. Each is wrapped with what happened
// and the path it happened to.
var (
	// ErrLocked: another process holds the state directory.
	ErrLocked = errors.New("state is locked by another process")
	// ErrUnwritable: the state directory can't be created or written.
	ErrUnwritable = errors.New("state directory is not writable")
	// ErrNewerSchema: a newer version of plegd wrote the file. Nothing was touched.
	ErrNewerSchema = errors.New("state was written by a newer version")
	// ErrForeign: the file describes another runtime or node. Nothing was touched.
	ErrForeign = errors.New("state describes another runtime")
	// ErrExpired: the position asked for is no longer in the journal, or is of another epoch.
	ErrExpired = errors.New("position expired")
	// ErrFull: the disk or the file's maximum size has no room. The same batch
	// may be committed again, in place, when there is room.
	ErrFull = errors.New("no space for state")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
)

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
// whose outcome is unknown is simply tried again.
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

// Empty reports whether the batch changes anything but meta.
func (b *Batch) Empty() bool {
	return len(b.Records)+len(b.Gone)+len(b.Tombstones)+len(b.Forgotten)+len(b.Asks)+len(b.Answered)+len(b.Events) == 0
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
	// committed again. ErrFull is wrapped when there was no room.
	Commit(*Batch) error
	// Events returns up to limit entries with numbers above after, oldest
	// first, and at most about 1 MiB of them, in a read transaction that ends
	// with the call. It fails with ErrExpired when entries above after were
	// dropped by the retention: when after+1 is below the oldest number and
	// not covered by a SequenceSkipped entry that is still stored.
	Events(after uint64, limit int) ([]Event, error)
	// Journal describes the journal.
	Journal() Journal
	// Close releases the store. It is safe to call more than once.
	Close() error
}
