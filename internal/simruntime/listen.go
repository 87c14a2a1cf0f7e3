package simruntime

import (
	"fmt"
	"net"
	"os"

	"github.com/plegd/plegd/internal/unixsock"
)

// socketMode lets owner and group connect, as containerd's socket does.
const socketMode = 0o660

// Listen makes a unix socket with mode 0660. A socket file on which nobody
// listens any more is replaced; one that answers is not (unixsock.ErrInUse), and
// neither is anything that isn't a socket. Serve closes the listener and opens
// it anew when the runtime goes down and comes up.
func Listen(path string) (net.Listener, error) {
	if err := unixsock.ClearStale(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	lis, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, unixsock.Cause(err))
	}
	if err := os.Chmod(path, socketMode); err != nil {
		_ = lis.Close()
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return &unixListener{Listener: lis, path: path}, nil
}

// unixListener is a listener that can be opened again after it was closed.
type unixListener struct {
	net.Listener
	path string
}

// keepFile lets the socket file be when the listener is closed.
func (l *unixListener) keepFile() {
	if u, ok := l.Listener.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
}

func (l *unixListener) reopen() (net.Listener, error) { return Listen(l.path) }

// opener hands Serve a listener for each run of the runtime.
type opener interface {
	open() (net.Listener, error) // for the next run; the last one is closed
	close()                      // for good
}

func newOpener(lis net.Listener, up bool) opener {
	if u, ok := lis.(*unixListener); ok {
		return &unixOpener{lis: u}
	}
	return newValve(lis, up)
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
