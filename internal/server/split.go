package server

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/note"
	"github.com/plegd/plegd/internal/retry"
	"github.com/plegd/plegd/internal/unixsock"
)

const (
	// firstBytes is how long a client may take to say which protocol it speaks.
	firstBytes = 5 * time.Second
	// maxUndecided connections have not said so, as far as was read. While there are
	// so many none is accepted, and the oldest of them have lastChance left: that is
	// enough to read what was said, as who has something to ask does at once, and so
	// those who say nothing keep nobody out for long.
	maxUndecided, lastChance = 64, 10 * time.Millisecond
	// maxWaiting connections for one server have said so and wait until it takes
	// them, which HTTP does while it has room: enough for all of a node's clients,
	// which come at once when the agent is back. One more is told so.
	maxWaiting = 256
	// refuseTimeout bounds what is said to those who are too many.
	refuseTimeout = 100 * time.Millisecond
	// maxUsers is how many pairs of user and group are told apart in the log.
	maxUsers = 1024
	// acceptFirst and acceptMost space tries to accept after an error, such as no
	// file descriptor being left.
	acceptFirst, acceptMost = 5 * time.Millisecond, time.Second
)

// preface begins each connection of HTTP/2 by prior knowledge, as gRPC's are, and
// no request of HTTP/1: PRI is reserved for that (RFC 9113, section 3.4).
const preface = "PRI * HTTP/2.0\r\n"

// splitter hands the connections of one listener to two servers, by their first
// bytes.
type splitter struct {
	lis       net.Listener
	log       *slog.Logger
	wait      time.Duration // firstBytes, but in tests
	http, rpc *branch

	deciding sync.WaitGroup

	mu        sync.Mutex
	undecided *list.List    // of *undecided, oldest first; none of them is a server's
	room      chan struct{} // capacity 1: there may be room for another one
	users     map[[2]uint32]bool
}

// undecided is a connection that has not said which protocol it speaks.
type undecided struct {
	net.Conn
	last bool // it has its last chance
}

// branch is what one of the servers listens on.
type branch struct {
	addr    net.Addr
	refusal string // what those are told that are too many
	waiting chan struct{}
	conns   chan net.Conn
	done    chan struct{}
	close   func()
}

func newSplitter(lis net.Listener, log *slog.Logger) *splitter {
	return &splitter{
		lis: lis, log: log, wait: firstBytes, http: newBranch(lis.Addr(), busyHTTP), rpc: newBranch(lis.Addr(), ""),
		undecided: list.New(), room: make(chan struct{}, 1), users: map[[2]uint32]bool{},
	}
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

// run accepts until ctx ends, and returns when nothing of it goes on.
func (s *splitter) run(ctx context.Context) error {
	defer s.deciding.Wait()
	defer s.closeUndecided()
	stop := context.AfterFunc(ctx, func() { _ = s.lis.Close() })
	defer stop()
	delays, troubled := retry.Delays(acceptFirst, acceptMost), false
	for {
		conn, err := s.lis.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("%s: %w", s.lis.Addr(), err)
		case err != nil:
			if !troubled {
				s.log.Error("no connection can be accepted", "socket", s.lis.Addr().String(), "error", err)
			}
			troubled = true
			select {
			case <-ctx.Done():
			case <-time.After(delays.NextBackOff()):
			}
			continue
		case troubled:
			s.log.Info("connections are accepted again", "socket", s.lis.Addr().String())
			troubled = false
			delays.Reset()
		}
		_ = conn.SetReadDeadline(time.Now().Add(s.wait)) // one that is closed already says so when it is read
		s.mu.Lock()
		place := s.undecided.PushBack(&undecided{Conn: conn})
		s.mu.Unlock()
		s.deciding.Go(func() { s.decide(ctx, conn, place) })
		for s.crowded() && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-s.room:
			}
		}
	}
}

// crowded reports whether there are as many undecided connections as may be. The
// oldest quarter of them has its last chance then.
func (s *splitter) crowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.undecided.Len() < maxUndecided {
		return false
	}
	soon, e := time.Now().Add(lastChance), s.undecided.Front()
	for range maxUndecided / 4 {
		if u := e.Value.(*undecided); !u.last { // nothing else is in it
			u.last = true
			_ = u.SetReadDeadline(soon) // one that is closed is about to leave
		}
		e = e.Next()
	}
	return true
}

func (s *splitter) closeUndecided() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := s.undecided.Front(); e != nil; e = e.Next() {
		_ = e.Value.(*undecided).Close() // nobody has spoken with it
	}
}

// decide reads the first bytes and hands the connection on.
func (s *splitter) decide(ctx context.Context, conn net.Conn, place *list.Element) {
	head, is, err := readPreface(conn)
	s.mu.Lock()
	s.undecided.Remove(place)
	s.mu.Unlock()
	note.Leave(s.room)
	if err != nil {
		_ = conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	to, protocol := s.http, "HTTP"
	if is {
		to, protocol = s.rpc, "gRPC"
	}
	s.logPeer(conn, protocol)
	to.take(ctx, &peeked{Conn: conn, head: head})
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

// logPeer says who has connected.
func (s *splitter) logPeer(conn net.Conn, protocol string) {
	who, err := unixsock.PeerOf(conn)
	if err != nil {
		return // gone, or a test's
	}
	s.log.Debug("connection", "protocol", protocol, "pid", who.PID, "uid", who.UID, "gid", who.GID)
	key := [2]uint32{who.UID, who.GID}
	s.mu.Lock()
	first := !s.users[key] && len(s.users) < maxUsers
	if first {
		s.users[key] = true
	}
	s.mu.Unlock()
	if first {
		s.log.Info("first connection of a user to the socket", "protocol", protocol, "pid", who.PID, "uid", who.UID, "gid", who.GID)
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
