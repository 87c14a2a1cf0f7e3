package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Compacted is what [Compact] did.
type Compacted struct {
	Path          string
	Before, After int64 // size of the file, bytes
}

// Compact rewrites a state file, or the one in a state directory, without its
// free pages, which bbolt keeps for ever, and renames the copy into place. It
// needs room for both. Nothing else changes, single values that can't be read
// included. The error wraps [ErrLocked] while an agent uses the directory,
// [ErrDamaged] when the file can't be read, and then nothing is touched, or is
// one of the others that [OpenBolt] gives.
func Compact(path string) (c Compacted, err error) {
	c.Path = stateFile(path)
	if _, err := os.Stat(c.Path); err != nil { // a lock file would be made
		return c, fmt.Errorf("state file: %w", err)
	}
	b, err := openToCompact(c.Path)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if c.Before, err = b.size(); err != nil {
		return c, err
	}
	if err := b.moveOver(); err != nil {
		return c, fmt.Errorf("state file %s: compact: %w", c.Path, err)
	}
	c.After, err = b.size()
	return c, err
}

// openToCompact locks the directory of a state file and opens it.
func openToCompact(path string) (*Bolt, error) {
	cfg := BoltConfig{Dir: filepath.Dir(path), file: path, Timeout: DefaultTimeout, Now: time.Now} // of any size
	lock, err := takeLock(cfg.lock())
	if err != nil {
		return nil, err
	}
	b, err := openHeld(cfg)
	if err != nil {
		return nil, errors.Join(err, lock.release())
	}
	b.lock = lock
	return b, nil
}

// openHeld opens a file whose pages are sound, while nobody writes to it.
func openHeld(cfg BoltConfig) (*Bolt, error) {
	held, err := holdFile(cfg.path(), cfg.Timeout)
	if err != nil {
		return nil, err
	}
	defer held.release()
	if _, err := checkPages(cfg.path()); err != nil {
		return nil, err
	}
	return openFile(cfg, held, false)
}

// size returns the size of the open file.
func (b *Bolt) size() (int64, error) {
	info, err := b.file.Stat()
	if err != nil {
		return 0, fmt.Errorf("state file %s: %w", b.path, err)
	}
	return info.Size(), nil
}
