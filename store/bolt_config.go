package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// The files of a state directory.
const (
	// FileName is the name of the state file.
	FileName = "state.db"
	// damagedInfix comes between the state file's name and the time in the
	// name of a file that was set aside.
	damagedInfix = ".damaged-"
	// newSuffix marks a file that is still being made.
	newSuffix = ".new"
)

const (
	// DefaultTimeout is how long opening waits for bbolt's lock on the file.
	// While our own lock file is free, only a reader such as `plegd state show`
	// should hold it, and those are done in well under a second. If a writer
	// does, its lock file was deleted, and opening fails.
	DefaultTimeout = 2 * time.Second
	// DefaultMaxSize is the largest state file, in bytes: a full journal (64
	// MiB) and the records of 20,000 containers (about 80 MiB), twice, since
	// bbolt writes a page anew before it frees the old one, and some room. It
	// is there to stop a runaway, not to shape normal use.
	DefaultMaxSize = 512 << 20
	// minMaxSize is the smallest MaxSize that still holds a small node.
	minMaxSize = 256 << 10
	// keepDamaged is how many files set aside are kept: the latest, and the
	// one before in case the damage has a history.
	keepDamaged = 2
)

// BoltConfig says how to open a state file. The zero value of every field but
// Dir has a meaning.
type BoltConfig struct {
	// Dir is the state directory, made with mode 0700 if it isn't there.
	Dir string
	// Runtime is the runtime to be described. A file that describes another
	// one is refused: endpoint and node must be equal, and the name too where it
	// is given. A file without a name describes no runtime yet.
	Runtime RuntimeID
	// Retention bounds the journal; zero fields mean the defaults.
	Retention Retention
	// Timeout is how long to wait for bbolt's lock on the file, 0 means
	// DefaultTimeout. The lock file is never waited for.
	Timeout time.Duration
	// MaxSize is the largest state file in bytes, 0 means DefaultMaxSize. A
	// commit that needs more fails with ErrFull.
	MaxSize int
	// Now tells the time for the names of files set aside; nil means time.Now.
	Now func() time.Time
	// Check examines the closed file at path before it is opened, typically by
	// bbolt's own integrity check in a child process with a deadline, which the
	// start waits for: 0.1 s for 64 MiB that are in memory, else what it takes
	// to read them. It is asked only after anything but a clean stop, since
	// OpenBolt itself walks all pages and checksums in any case. An error that
	// wraps ErrDamaged condemns the file; any other, such as a deadline that
	// passed, is only reported, in OpenReport.CheckError. Meanwhile the file is
	// locked for reading, so it can be opened read-only and no other way. Nil
	// means no further check.
	Check func(path string) error

	file string // the state file, where it isn't the one in Dir
}

func (c BoltConfig) defaulted() BoltConfig {
	c.Retention = c.Retention.Defaulted()
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxSize == 0 {
		c.MaxSize = DefaultMaxSize
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c BoltConfig) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("state directory: not given")
	case c.Timeout < 0:
		return fmt.Errorf("state timeout %s: must not be negative", c.Timeout)
	case c.MaxSize < minMaxSize:
		return fmt.Errorf("state size limit %d: must be at least %d bytes", c.MaxSize, minMaxSize)
	case c.Retention.Age < 0 || c.Retention.Entries < 0 || c.Retention.Bytes < 0:
		return fmt.Errorf("journal retention %+v: must not be negative", c.Retention)
	case c.Retention.Bytes > int64(c.MaxSize)/2:
		return fmt.Errorf("journal retention of %d bytes: must be at most half the state size limit of %d bytes", c.Retention.Bytes, c.MaxSize)
	}
	return nil
}

func (c BoltConfig) path() string {
	if c.file != "" {
		return c.file
	}
	return filepath.Join(c.Dir, FileName)
}

func (c BoltConfig) lock() string { return filepath.Join(c.Dir, LockName) }

// OpenReport tells what opening found and did.
type OpenReport struct {
	// Fresh: a new, empty file was made.
	Fresh bool
	// SetAside is where a damaged file was put, "" if there was none.
	SetAside string
	// Reason says why the old file was not used, nil if there was none.
	Reason error
	// CheckError is what BoltConfig.Check returned, if that condemned nothing.
	CheckError error
	// Damaged is how many single values can't be read. They are left out by
	// Load and dropped by the next commit.
	Damaged int
}
