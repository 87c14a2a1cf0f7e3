package store

import "errors"

// The errors that callers can tell apart. Each is wrapped with what happened
// and the path it happened to.
var (
	// ErrLocked: another process holds the state directory, or the file.
	ErrLocked = errors.New("state is locked by another process")
	// ErrUnwritable: the state directory can't be created or written, or has
	// become read-only.
	ErrUnwritable = errors.New("state directory is not writable")
	// ErrNewerSchema: a newer version of plegd wrote the file. Nothing was touched.
	ErrNewerSchema = errors.New("state was written by a newer version")
	// ErrForeign: the file describes another runtime or node. Nothing was touched.
	ErrForeign = errors.New("state describes another runtime")
	// ErrDamaged: the file, or what is needed of it, can't be read. At a start
	// it is set aside; later the store answers every call with this error,
	// since nothing of what bbolt holds in memory can be trusted any more.
	ErrDamaged = errors.New("state file is damaged")

	// ErrReplaced: the state file is no longer the one that has its name: it was
	// deleted or moved, another one was put there, or the state directory is
	// gone. What was committed last may be in a file that the next start won't
	// find. [Rescuer.Rescue] puts it back.
	ErrReplaced = errors.New("state file was deleted or replaced")

	// ErrExpired: the position asked for is no longer in the journal, or is of another epoch.
	ErrExpired = errors.New("position expired")

	// ErrFull: the disk or the file's maximum size has no room. The same batch
	// may be committed again, in place, when there is room.
	ErrFull = errors.New("no space for state")
	// ErrIO: the disk failed. What was written is unknown; committing the same
	// batch again in place may fail for ever (rule D3).
	ErrIO = errors.New("state I/O failed")
	// ErrBatch: a batch contradicts itself, such as events out of order or of
	// an epoch that isn't its meta's. It is the caller's mistake and never
	// goes away by trying again.
	ErrBatch = errors.New("malformed batch")
	// ErrConflict: a batch holds an event under a number that the journal has
	// used otherwise. Trying again never helps; a new epoch does.
	ErrConflict = errors.New("number is taken by another event")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")

	// ErrEvent is wrapped by every error about JSON that is no event.
	ErrEvent = errors.New("malformed event")

	// errReadOnly is returned by commits to a store opened for reading.
	errReadOnly = errors.New("state was opened for reading only")
	// errDamagedValue is wrapped by every error about a single value that can't be read.
	errDamagedValue = errors.New("value is damaged")
)
