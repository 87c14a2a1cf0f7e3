package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"

	"github.com/plegd/plegd/internal/unixsock"
)

// others returns the connections to a unix socket that this process doesn't hold.
// The kernel tells of them by sock_diag, and of whose they are by the open files
// of all processes, which only root may look at.
//
// The runtime's end of a connection has the socket's path for a name, the other
// end has none and is found as its peer.
func others(path string) ([]Other, error) {
	sockets, err := netlink.UnixSocketDiagInfo()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("sock_diag: %w", err)
	}
	unread := map[uint32]int{} // of the peers, by inode
	for _, s := range sockets {
		if s.Name == nil || s.Peer == nil || *s.Peer == 0 {
			continue
		}
		if name, _, _ := strings.Cut(*s.Name, "\x00"); name == path { // more may follow it
			unread[*s.Peer] = 0
		}
	}
	for _, s := range sockets {
		if _, ok := unread[s.DiagMsg.INode]; ok && s.Queue != nil {
			unread[s.DiagMsg.INode] = int(s.Queue.RQueue)
		}
	}
	owners, err := owners()
	if err != nil {
		return nil, err
	}
	var all []Other
	for inode, n := range unread {
		o := Other{Unread: n}
		if p, ok := owners[inode]; ok {
			if p.PID == os.Getpid() {
				continue
			}
			o.PID = p.PID
			o.Name, _ = p.Comm() // it may have ended
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b Other) int { return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Unread, b.Unread)) })
	return all, nil
}

// ofAgent reports whether it is an agent that listens at the other end of a connection,
// as far as may be looked. The CRI has nothing that would say so.
func ofAgent(conn net.Conn) bool {
	peer, err := unixsock.PeerOf(conn)
	if err != nil {
		return false
	}
	p, err := procfs.NewProc(int(peer.PID))
	if err != nil {
		return false
	}
	args, err := p.CmdLine()
	return err == nil && slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--cri-socket") })
}

// owners finds the process that holds each socket, as far as may be looked.
func owners() (map[uint32]procfs.Proc, error) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	owners := map[uint32]procfs.Proc{}
	for _, p := range processes {
		targets, err := p.FileDescriptorTargets()
		if err != nil {
			continue // ended, or not ours to look at
		}
		for _, t := range targets {
			var inode uint32
			if _, err := fmt.Sscanf(t, "socket:[%d]", &inode); err == nil {
				owners[inode] = p
			}
		}
	}
	return owners, nil
}
