package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// holdRetry is how long to wait before bbolt's lock is tried again.
const holdRetry = 10 * time.Millisecond

// heldFile is a state file with bbolt's own lock on it, taken before anything
// in the file is looked at. The lock file alone doesn't do: whoever deletes it
// lets a second process in, and that would take pages that the first one is
// writing for damage and put the live file aside.
//
// A flock belongs to the open file description, so bbolt gets a duplicate of
// this very handle: what was examined is what it opens, and there is no moment
// between in which the file isn't locked.
type heldFile struct {
	path  string
	f     *os.File // nil: not a regular file, of which there is nothing to hold
	owned bool     // own was called
}

// holdFile locks an existing file for reading, so that nobody writes to it
// while others may read. It waits up to timeout, like bbolt.
func holdFile(path string, timeout time.Duration) (*heldFile, error) {
	h := &heldFile{path: path}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return h, nil
	}
	if err == nil {
		h.f, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			err = classify(err, ErrUnwritable)
		}
		return nil, fmt.Errorf("state file %s: %w", path, err)
	}
	if err := h.flock(unix.LOCK_SH, timeout); err != nil {
		_ = h.f.Close()
		return nil, err
	}
	return h, nil
}

// own makes the lock one for writing: the file is about to be renamed, which
// nobody else may be about to do. bbolt may have given the lock up meanwhile.
func (h *heldFile) own(timeout time.Duration) error {
	if h.f == nil {
		return nil
	}
	h.owned = true
	return h.flock(unix.LOCK_EX, timeout)
}

// flock takes or changes the lock and makes sure that it is on the file that
// has the name.
func (h *heldFile) flock(how int, timeout time.Duration) error {
	locked := lockedError("state file "+h.path, (BoltConfig{Dir: filepath.Dir(h.path)}).lock())
	for until := time.Now().Add(timeout); ; time.Sleep(holdRetry) {
		err := unix.Flock(int(h.f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("state file %s: lock: %w", h.path, classify(err, nil))
		}
		if time.Now().After(until) {
			return locked
		}
	}
	mine, err := h.f.Stat()
	if err != nil {
		return fmt.Errorf("state file %s: %w", h.path, classify(err, ErrUnwritable))
	}
	if named, err := os.Stat(h.path); err != nil || !os.SameFile(mine, named) {
		return locked // whoever had the lock before has put another in place
	}
	return nil
}

// share returns a second handle, with the same lock.
func (h *heldFile) share() (*os.File, error) {
	if h.f == nil {
		return nil, fmt.Errorf("state file %s: not a regular file", h.path)
	}
	return duplicate(h.f, h.path)
}

// duplicate returns a second handle of what f has open, flock included, under
// a name for messages.
func duplicate(f *os.File, name string) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("state file %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// release closes this handle. The lock lives on where bbolt shares it, but not
// once the file was condemned: a panic may have left a memory map, which would
// keep it locked for ever.
func (h *heldFile) release() {
	if h.f == nil {
		return
	}
	if h.owned {
		_ = unix.Flock(int(h.f.Fd()), unix.LOCK_UN)
	}
	_ = h.f.Close()
}

// shareFile takes bbolt's lock on a file for reading, so that nobody writes
// while its pages are scanned.
func shareFile(path string) (unlock func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("state file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, lockedError("state file "+path, (BoltConfig{Dir: filepath.Dir(path)}).lock())
		}
		return nil, fmt.Errorf("state file %s: lock: %w", path, err)
	}
	return func() { _ = f.Close() }, nil
}
