package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// LockName is the name of the lock file in a state directory.
const LockName = "lock"

// lockFile is an exclusive flock on a file of its own, held for life. bbolt
// locks its file too, but that lock moves away with a renamed file. That one
// is what is left when somebody deletes the lock file, see heldFile.
type lockFile struct{ f *os.File }

// takeLock locks path and writes this process's id into it. Another holder is
// named in the error, which wraps [ErrLocked].
func takeLock(path string) (*lockFile, error) {
	// Go opens with O_CLOEXEC, so that no child inherits the lock.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock file %s: %w", path, classify(err, ErrUnwritable))
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		_ = f.Close()
		return nil, lockedError("state directory "+filepath.Dir(path), path)
	case err != nil:
		_ = f.Close()
		return nil, fmt.Errorf("lock file %s: %w", path, classify(err, ErrUnwritable))
	}
	// The id only serves a message: a disk too full for it is no reason to
	// refuse.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &lockFile{f}, nil
}

// inPlace reports whether the file still has its name.
func (l *lockFile) inPlace() bool {
	mine, err := l.f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(l.f.Name())
	return err == nil && os.SameFile(mine, named)
}

// release gives the lock up. The file stays: removing it would let two
// processes hold locks on two files of one name.
func (l *lockFile) release() error {
	_ = l.f.Truncate(0) // so that no dead process is ever named
	return l.f.Close()
}

// lockedError says that a state file, or the directory, is locked, and by whom
// as far as the lock file tells.
func lockedError(what, lock string) error {
	if pid := lockHolder(lock); pid > 0 {
		return fmt.Errorf("%s: %w with pid %d", what, ErrLocked, pid)
	}
	return fmt.Errorf("%s: %w", what, ErrLocked)
}

// lockHolder reads the process id in a lock file, 0 when there is none.
func lockHolder(path string) int {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return 0
	}
	return pid
}
