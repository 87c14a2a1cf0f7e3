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
	// maxUsers is how many pairs of user and group are told apart in the log.
	maxUsers = 1024
	// acceptFirst and acceptMost space tries to accept after an error, such as no
	// file descriptor being left.
	acceptFirst, acceptMost = 5 * time.Millisecond, time.Second
	// acceptCalm is how long there must have been no such error until it is said that
	// they are over: they come and go where connections come and go.
	acceptCalm = time.Minute
)

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

func newSplitter(lis net.Listener, log *slog.Logger) *splitter {
	return &splitter{
		lis: lis, log: log, wait: firstBytes, http: newBranch(lis.Addr(), busyHTTP), rpc: newBranch(lis.Addr(), ""),
		undecided: list.New(), room: make(chan struct{}, 1), users: map[[2]uint32]bool{},
	}
}

// run accepts until ctx ends, and returns when nothing of it goes on.
func (s *splitter) run(ctx context.Context) error {
	defer s.deciding.Wait()
	defer s.closeUndecided()
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(closed); _ = s.lis.Close() })
	defer func() {
		if !stop() {
			<-closed // an agent that has ended leaves no socket on which one could knock
		}
	}()
	delays := retry.Delays(acceptFirst, acceptMost)
	var trouble time.Time // of the last error, until it is over
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
			if trouble.IsZero() {
				s.log.Error("no connection can be accepted", "socket", s.lis.Addr().String(), "error", err)
			}
			trouble = time.Now()
			select {
			case <-ctx.Done():
			case <-time.After(delays.NextBackOff()):
			}
			continue
		case !trouble.IsZero() && time.Since(trouble) > acceptCalm:
			s.log.Info("connections are accepted again", "socket", s.lis.Addr().String())
			trouble = time.Time{}
		}
		delays.Reset()
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
