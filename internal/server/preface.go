package server

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// preface begins each connection of HTTP/2 by prior knowledge, as gRPC's are, and
// no request of HTTP/1: PRI is reserved for that (RFC 9113, section 3.4).
const preface = "PRI * HTTP/2.0\r\n"

// readPreface reads no further than is needed to know whether a connection begins
// as those of HTTP/2 do.
func readPreface(conn net.Conn) (head []byte, is bool, err error) {
	head = make([]byte, 0, len(preface))
	for len(head) < len(preface) {
		n, err := conn.Read(head[len(head):cap(head)])
		if errors.Is(err, os.ErrDeadlineExceeded) && len(head) == 0 {
			n, err = readWhatIsThere(conn, head[:cap(head)], err)
		}
		head = head[:len(head)+n]
		if string(head) != preface[:len(head)] {
			return head, false, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
	return head, true, nil
}

// readWhatIsThere reads without waiting. A read whose time is over reads nothing, though
// what was said may be there for long, if this machine has left it no time before. If
// nothing is there the error is late.
func readWhatIsThere(conn net.Conn, b []byte, late error) (n int, err error) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return 0, late
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return 0, err
	}
	err = raw.Read(func(fd uintptr) bool {
		n, _ = syscall.Read(int(fd), b) // it doesn't block, as none of Go's sockets does
		return true
	})
	_ = conn.SetReadDeadline(time.Now()) // and no more is waited for
	if err == nil && n > 0 {
		return n, nil
	}
	return 0, late
}

// peeked is a connection whose first bytes were read already.
type peeked struct {
	net.Conn
	head []byte
}

// Read implements [net.Conn].
func (p *peeked) Read(b []byte) (int, error) {
	if len(p.head) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.head)
	p.head = p.head[n:]
	return n, nil
}

// NetConn returns what is wrapped, for who asks about the peer.
func (p *peeked) NetConn() net.Conn { return p.Conn }
