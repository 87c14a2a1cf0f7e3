package unixsock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// GroupMode lets owner and group connect.
	GroupMode fs.FileMode = 0o660
	ownerMode fs.FileMode = 0o700
	// dirMode of the socket's directory, if it has to be made: others may pass
	// it, since the socket's own mode and group decide who may connect.
	dirMode = 0o755
)

// Socket is a listening unix socket that removes its own file when closed, and
// no other that may have come to its place.
type Socket struct {
	net.Listener
	path string
	file fs.FileInfo
}

// Listen is ListenFor with the group of the process.
func Listen(path string, mode fs.FileMode) (*Socket, error) { return ListenFor(path, mode, nil) }

// ListenFor makes a unix socket with these permission bits, whatever the umask,
// and this group, nil for that of the process. At no moment can anybody else
// connect. A socket file on which nobody listens any more is replaced; one that
// answers, or may, is not (the error wraps [ErrInUse]), nor is any other file. A
// missing directory is made.
func ListenFor(path string, mode fs.FileMode, group *int) (*Socket, error) {
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return nil, err
	}
	if err := ClearStale(path); err != nil {
		if errors.Is(err, ErrInUse) {
			err = fmt.Errorf("%w, perhaps by another plegd", err)
		}
		return nil, err
	}
	first := mode.Perm()
	if group != nil {
		first &= ownerMode // the group is still another
	}
	// Linux makes the file with the mode of the unbound socket, less the
	// umask, so that there is no moment at which others could connect.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if cerr := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), uint32(first)) }); cerr != nil {
			return cerr
		}
		return err
	}}
	lis, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	lis.(*net.UnixListener).SetUnlinkOnClose(false)
	s := &Socket{Listener: lis, path: path}
	if s.file, err = os.Lstat(path); err != nil {
		return nil, errors.Join(err, lis.Close())
	}
	if group != nil {
		err = os.Chown(path, -1, *group)
	}
	if err == nil {
		err = os.Chmod(path, mode) // the umask may have taken the group's part
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close closes the listener and removes its file. It may be called again.
func (s *Socket) Close() error {
	// The time tells too, since the number of a removed file is soon given out
	// again.
	if info, err := os.Lstat(s.path); err == nil && os.SameFile(info, s.file) && info.ModTime().Equal(s.file.ModTime()) {
		_ = os.Remove(s.path) // one left behind is replaced by the next agent
	}
	return s.Listener.Close()
}
