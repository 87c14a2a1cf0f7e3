package criserver

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/plegd/plegd/internal/crowd"
	"github.com/plegd/plegd/internal/unsent"
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

// guestOf returns the connection of a call, nil if that isn't known.
func guestOf(ctx context.Context) *crowd.Guest {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, _ := p.AuthInfo.(guestInfo)
	return info.guest
}

// count tells a call's connection of its beginning and its end, and has one end whose
// request doesn't come.
func (s *Server) count(ctx context.Context, _ *tap.Info) (context.Context, error) {
	guest := guestOf(ctx)
	if guest != nil {
		guest.Begin()
	}
	return unsent.Await(ctx, s.cfg.Stall, func() {
		if guest != nil {
			guest.End()
		}
	}), nil
}
