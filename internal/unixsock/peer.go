package unixsock

import (
	"errors"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Peer is the process at the other end: the one that connected, as it was then, or that
// listens, as it was when it began to.
type Peer struct {
	PID      int32
	UID, GID uint32
}

// ErrNoPeer: a connection that isn't of a unix socket.
var ErrNoPeer = errors.New("not a connection of a unix socket")

// PeerOf returns who is at the other end of a connection (SO_PEERCRED). What is
// wrapped is found by NetConn, as [crypto/tls.Conn] has it.
func PeerOf(conn net.Conn) (Peer, error) {
	for {
		inner, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = inner.NetConn()
	}
	sc, ok := conn.(syscall.Conn)
	if _, isUnix := conn.(*net.UnixConn); !ok || !isUnix {
		return Peer{}, ErrNoPeer
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		return Peer{}, cerr
	}
	if err != nil {
		return Peer{}, err
	}
	return Peer{PID: cred.Pid, UID: cred.Uid, GID: cred.Gid}, nil
}
