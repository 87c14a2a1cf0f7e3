package store

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// errnos maps what the system says to what the caller can do about it. EFBIG
// is the limit on file size (ulimit -f).
var errnos = []struct {
	errno unix.Errno
	kind  error
}{
	{unix.ENOSPC, ErrFull}, {unix.EDQUOT, ErrFull}, {unix.EFBIG, ErrFull},
	{unix.EROFS, ErrUnwritable}, {unix.EACCES, ErrUnwritable}, {unix.EPERM, ErrUnwritable},
	{unix.EIO, ErrIO},
}

// classify wraps err with the sentinel that fits it, or with otherwise where
// none does; otherwise may be nil.
func classify(err, otherwise error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, berrors.ErrMaxSizeReached):
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	for _, e := range errnos {
		// bbolt wraps the errors of growing a file as text only.
		if errors.Is(err, e.errno) || strings.HasSuffix(err.Error(), e.errno.Error()) {
			return fmt.Errorf("%w: %w", e.kind, err)
		}
	}
	if otherwise != nil && !errors.Is(err, otherwise) {
		return fmt.Errorf("%w: %w", otherwise, err)
	}
	return err
}

// guard runs fn and turns a panic in it, memory faults included, into an error
// that wraps [ErrDamaged]. bbolt reads its file through a memory map and trusts
// what it reads: on a damaged file it panics, and on one that is too short the
// kernel sends a fault (upstream: etcd-io/bbolt#562). Only the calling
// goroutine is covered, so nothing that starts others, such as bbolt's Check,
// may run in it.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return fn()
}
