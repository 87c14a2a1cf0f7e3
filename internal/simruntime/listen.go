package simruntime

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// socketMode lets owner and group connect, as containerd's socket does.
const socketMode = 0o660

// probeTimeout is how long Listen waits for whoever may own a socket that is
// already there. Connecting to a unix socket doesn't take a round trip.
const probeTimeout = time.Second

// Listen makes a unix socket with mode 0660. A socket file on which nobody
// listens any more is replaced; one that answers is not (ErrSocketInUse), and
// neither is anything that isn't a socket. Serve closes the listener and opens
// it anew when the runtime goes down and comes up.
func Listen(path string) (net.Listener, error) {
	if err := clearStale(path); err != nil {
		return nil, err
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		_ = lis.Close()
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return &unixListener{Listener: lis, path: path}, nil
}

func clearStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("socket %s: %w", path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("socket %s: the file there is not a socket", path)
	}
	conn, err := net.DialTimeout("unix", path, probeTimeout)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("socket %s: %w", path, ErrSocketInUse)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		// A full backlog or a lack of rights doesn't mean that nobody is there.
		return fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	return nil
}

// unixListener is a listener that can be opened again after it was closed.
type unixListener struct {
	net.Listener
	path string
}

func (l *unixListener) reopen() (net.Listener, error) { return Listen(l.path) }

// opener hands Serve a listener for each run of the runtime.
type opener interface {
	open() (net.Listener, error) // for the next run; the last one is closed
	close()                      // for good
}

func newOpener(lis net.Listener) opener {
	if u, ok := lis.(*unixListener); ok {
		return &unixOpener{lis: u}
	}
	return newValve(lis)
}

type unixOpener struct {
	lis  *unixListener
	used bool
}

func (o *unixOpener) open() (net.Listener, error) {
	if !o.used {
		o.used = true
		return o.lis, nil
	}
	return o.lis.reopen()
}

func (o *unixOpener) close() {
	if !o.used {
		_ = o.lis.Close()
	}
}
