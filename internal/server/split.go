package server

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/retry"
	"github.com/plegd/plegd/internal/unixsock"
)

const (
	// firstBytes is how long a client may take to say which protocol it speaks.
	firstBytes = 5 * time.Second
	// maxUndecided connections have not said so, or wait to be taken. When there are
	// more, the oldest is closed: a client with something to ask has said so at
	// once, and so those who say nothing keep nobody out.
	maxUndecided = 64
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
	undecided *list.List // of *undecided, oldest first
	users     map[[2]uint32]bool
}

// undecided is a connection that no server has yet.
type undecided struct {
	net.Conn
	gone    chan struct{} // closed when it has to go
	decided bool          // it may be a server's already
}

// branch is what one of the servers listens on.
type branch struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newSplitter(lis net.Listener, log *slog.Logger) *splitter {
	return &splitter{
		lis: lis, log: log, wait: firstBytes, http: newBranch(lis.Addr()), rpc: newBranch(lis.Addr()),
		undecided: list.New(), users: map[[2]uint32]bool{},
	}
}

func newBranch(addr net.Addr) *branch {
	b := &branch{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
	b.close = sync.OnceFunc(func() { close(b.done) })
	return b
}

// run accepts until ctx ends, and returns when nothing of it goes on.
func (s *splitter) run(ctx context.Context) error {
	defer s.deciding.Wait()
	defer s.giveUp(0)
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
		s.giveUp(maxUndecided - 1)
		u := &undecided{Conn: conn, gone: make(chan struct{})}
		s.mu.Lock()
		place := s.undecided.PushBack(u)
		s.mu.Unlock()
		s.deciding.Go(func() {
			s.decide(u)
			s.mu.Lock()
			s.undecided.Remove(place)
			s.mu.Unlock()
		})
	}
}

// giveUp closes the oldest undecided connections until at most so many are left.
func (s *splitter) giveUp(left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.undecided.Len() > left {
		u := s.undecided.Remove(s.undecided.Front()).(*undecided)
		close(u.gone)
		if !u.decided { // else whoever hands it on sees to it
			_ = u.Close()
		}
	}
}

// decide reads the first bytes and hands the connection on.
func (s *splitter) decide(u *undecided) {
	_ = u.SetReadDeadline(time.Now().Add(s.wait)) // it may be closed already, and then reading says so
	head, is, err := readPreface(u)
	if err != nil {
		_ = u.Close()
		return
	}
	_ = u.SetReadDeadline(time.Time{})
	to, protocol := s.http, "HTTP"
	if is {
		to, protocol = s.rpc, "gRPC"
	}
	s.mu.Lock()
	u.decided = true
	s.mu.Unlock()
	s.logPeer(u.Conn, protocol)
	conn := &peeked{Conn: u.Conn, head: head}
	select {
	case to.conns <- conn:
	case <-to.done:
		_ = conn.Close()
	case <-u.gone:
		_ = conn.Close()
	}
}

// readPreface reads no further than is needed to know whether a connection begins
// as those of HTTP/2 do.
func readPreface(conn net.Conn) (head []byte, is bool, err error) {
	head = make([]byte, 0, len(preface))
	for len(head) < len(preface) {
		n, err := conn.Read(head[len(head):cap(head)])
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
