package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/plegd/plegd/internal/crowd"
	"github.com/plegd/plegd/internal/unixsock"
)

// peerCredentials lets handlers know who is at the other end of a connection, and
// lets in those for which there is room. It checks nothing else: the mode and the
// group of the socket have.
type peerCredentials struct {
	crowd  *crowd.Crowd
	spoken chan struct{} // has a place for each who is told that there are too many
}

// authInfo says who is at the other end.
type authInfo struct {
	credentials.CommonAuthInfo
	*crowd.Guest
	peer unixsock.Peer // zero if it isn't known
	cuts atomic.Int32
}

// AuthType implements [credentials.AuthInfo].
func (*authInfo) AuthType() string { return "peer" }

// wasCut counts a stream that was cut. What was sent on it and not taken is kept
// as long as the connection lasts, so at some point that ends too.
func (a *authInfo) wasCut() {
	if a.cuts.Add(1) >= maxCuts {
		_ = a.Close()
	}
}

// authOf returns who has made a call, nil if that isn't known.
func authOf(ctx context.Context) *authInfo {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, _ := p.AuthInfo.(*authInfo)
	return info
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c peerCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	g := c.crowd.Enter(conn)
	if g == nil {
		select {
		case c.spoken <- struct{}{}:
			refuse(conn, goAwayTimeout)
			<-c.spoken
		default:
			_ = conn.Close()
		}
		return nil, nil, errCrowded
	}
	info := &authInfo{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, Guest: g}
	if who, err := unixsock.PeerOf(conn); err == nil {
		info.peer = who
	}
	return g, info, nil
}

var errCrowded = errors.New("too many connections")

// refuse tells a client of HTTP/2 that there are too many, and waits for so long until
// it has gone.
func refuse(conn net.Conn, patience time.Duration) {
	_ = conn.SetDeadline(time.Now().Add(patience))
	f := http2.NewFramer(conn, nil)
	why := fmt.Sprintf("%d connections are open and in use, which is all that may be", maxConns)
	// Whether it hears it or not, it has to go. While it still writes it would hear only
	// that nobody reads.
	_ = errors.Join(f.WriteSettings(), f.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte(why)))
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
}

var errServerOnly = errors.New("these credentials are a server's")

// ClientHandshake implements [credentials.TransportCredentials].
func (peerCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errServerOnly
}

// Info implements [credentials.TransportCredentials].
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "peer"}
}

// Clone implements [credentials.TransportCredentials].
func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements [credentials.TransportCredentials].
func (peerCredentials) OverrideServerName(string) error { return errServerOnly }
