package criserver

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/plegd/plegd/internal/crowd"
)

// named lets a call know its connection. It checks nothing: the mode and the
// group of the socket have.
type named struct {
	credentials.TransportCredentials
}

func newNamed() named { return named{insecure.NewCredentials()} }

// ServerHandshake implements [credentials.TransportCredentials].
func (n named) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	g, _ := conn.(*crowd.Guest) // as the listener has them
	return conn, guestInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, g}, nil
}

// Clone implements [credentials.TransportCredentials].
func (n named) Clone() credentials.TransportCredentials { return newNamed() }

// guestInfo is a connection, for its calls.
type guestInfo struct {
	credentials.CommonAuthInfo
	guest *crowd.Guest
}

// AuthType implements [credentials.AuthInfo].
func (guestInfo) AuthType() string { return "unix" }

// count tells a call's connection of its beginning and its end.
func count(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(guestInfo); ok && info.guest != nil {
			info.guest.Begin()
			context.AfterFunc(ctx, info.guest.End)
		}
	}
	return ctx, nil
}
