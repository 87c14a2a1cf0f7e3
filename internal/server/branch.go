package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// maxWaiting connections for one server have said so and wait until it takes
	// them, which HTTP does while it has room: enough for all of a node's clients,
	// which come at once when the agent is back. One more is told so.
	maxWaiting = 256
	// refuseTimeout bounds what is said to those who are too many.
	refuseTimeout = 100 * time.Millisecond
)

// branch is what one of the servers listens on.
type branch struct {
	addr    net.Addr
	refusal string // what those are told that are too many
	waiting chan struct{}
	conns   chan net.Conn
	done    chan struct{}
	close   func()
}

// busyHTTP is what clients of HTTP are told when even those that wait are too many.
// gRPC's server takes each connection at once, and has words of its own.
var busyHTTP = func() string {
	body := fmt.Sprintf(`{"error":"%d connections are in use and %d wait, which is all that may be; try again later"}`, maxConns, maxWaiting)
	return fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\nRetry-After: 10\r\nConnection: close\r\n\r\n%s", len(body), body)
}()

func newBranch(addr net.Addr, refusal string) *branch {
	b := &branch{addr: addr, refusal: refusal, waiting: make(chan struct{}, maxWaiting), conns: make(chan net.Conn), done: make(chan struct{})}
	b.close = sync.OnceFunc(func() { close(b.done) })
	return b
}

// take hands a connection to the server, once that takes it, unless too many wait
// for that.
func (b *branch) take(ctx context.Context, conn *peeked) {
	select {
	case b.waiting <- struct{}{}:
		defer func() { <-b.waiting }()
	default:
		_ = conn.SetWriteDeadline(time.Now().Add(refuseTimeout))
		_, _ = io.WriteString(conn, b.refusal) // whether it hears it or not, it has to go
		_ = conn.Close()
		return
	}
	select {
	case b.conns <- conn:
	case <-b.done:
		_ = conn.Close()
	case <-ctx.Done():
		_ = conn.Close()
	}
}

// Accept implements [net.Listener].
func (b *branch) Accept() (net.Conn, error) {
	select {
	case conn := <-b.conns:
		return conn, nil
	case <-b.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (b *branch) Close() error {
	b.close()
	return nil
}

// Addr implements [net.Listener].
func (b *branch) Addr() net.Addr { return b.addr }
