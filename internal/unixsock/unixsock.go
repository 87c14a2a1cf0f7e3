// Package unixsock holds what everything in plegd that makes or names a unix
// socket must agree on.
package unixsock

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// MaxPath is the longest path, in bytes, that fits into Linux's sockaddr_un
// with its terminating zero byte.
const MaxPath = 107

// ErrInUse: somebody answers on the socket, or may.
var ErrInUse = errors.New("socket is in use")

// errNoSocket: there is a file that ClearStale must not remove.
var errNoSocket = errors.New("there is a file that is not a socket")

// probeTimeout bounds the question whether somebody answers. Connecting to a
// unix socket takes no round trip, so this is for a machine that is swapping.
const probeTimeout = time.Second

// Cause is an error of listening or dialing without the operation and the
// address, for whoever names the address already.
func Cause(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	if sys, ok := errors.AsType[*os.SyscallError](err); ok {
		err = sys.Err
	}
	return err
}

// ClearStale removes the socket that a process which was killed has left at
// path. One that answers, or may, is not removed (the error wraps [ErrInUse]),
// nor is any other file. It is no error that there is nothing.
func ClearStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errNoSocket
	}
	conn, err := net.DialTimeout("unix", path, probeTimeout)
	switch {
	case err == nil:
		_ = conn.Close()
		return ErrInUse
	case !errors.Is(err, syscall.ECONNREFUSED):
		// A full backlog or a lack of rights doesn't mean that nobody is there.
		return fmt.Errorf("%w, or can't be asked: %w", ErrInUse, err)
	}
	return os.Remove(path)
}
