package cri

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
)

// greeting is a connection on which a failed write doesn't hide what the other side has
// said. Who speaks no gRPC answers and hangs up as soon as it has read a line: a write that
// comes later fails, and gRPC then tells of that write and not of the answer, which is all
// that says who is there. Reading shows the end as well, after all that came before it; so
// until the first that was read has been understood, writing to a closed connection fails
// there.
type greeting struct {
	net.Conn
	heard      bool        // something was read; of Read alone
	understood atomic.Bool // and more is wanted
}

// Read implements [net.Conn].
func (g *greeting) Read(p []byte) (int, error) {
	if g.heard {
		g.understood.Store(true)
	}
	n, err := g.Conn.Read(p)
	g.heard = g.heard || n > 0
	return n, err
}

// Write implements [net.Conn].
func (g *greeting) Write(p []byte) (int, error) {
	n, err := g.Conn.Write(p)
	if !g.understood.Load() && (errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)) {
		return len(p), nil
	}
	return n, err
}
