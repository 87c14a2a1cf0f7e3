package cri

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// This file ties calls to the connection on which they go out. gRPC chooses the
// connection of a call late, and makes a new one when it has to: who is at its
// other end may be another runtime than the one that was asked for its name. So
// each connection has a gate, and a call comes to it when gRPC is about to put
// it on that very connection, as credentials of a call do.

// session is one connection to the runtime. It is the connection's "auth
// info", which gRPC hands to the credentials of each call on it.
type session struct {
	credentials.CommonAuthInfo

	accept, close    sync.Once
	accepted, closed chan struct{}
}

// AuthType implements [credentials.AuthInfo].
func (*session) AuthType() string { return "local" }

func (s *session) open() { s.accept.Do(func() { close(s.accepted) }) }

// wait returns nil when the gate is open.
func (s *session) wait(ctx context.Context) error {
	select {
	case <-s.accepted:
		return nil
	default:
	}
	select {
	case <-s.accepted:
		return nil
	case <-s.closed:
		return status.Error(codes.Unavailable, "the connection was lost before it was known who answers")
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// sessionConn tells its session of the connection's end.
type sessionConn struct {
	net.Conn
	session *session
}

// Close implements [net.Conn].
func (c *sessionConn) Close() error {
	c.session.close.Do(func() { close(c.session.closed) })
	return c.Conn.Close()
}

// sessions makes a session of each connection. A connection is not encrypted:
// it is a socket of this machine.
type sessions struct {
	credentials.TransportCredentials

	gated bool
}

func newSessions(gated bool) *sessions {
	return &sessions{TransportCredentials: insecure.NewCredentials(), gated: gated}
}

// ClientHandshake implements [credentials.TransportCredentials].
func (t *sessions) ClientHandshake(_ context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	s := &session{accepted: make(chan struct{}), closed: make(chan struct{})}
	s.SecurityLevel = credentials.NoSecurity
	if !t.gated {
		s.open()
	}
	return &sessionConn{conn, s}, s, nil
}

// Clone implements [credentials.TransportCredentials].
func (t *sessions) Clone() credentials.TransportCredentials { return newSessions(t.gated) }

// gate stops calls that must not go out on a connection.
type gate struct{}

type (
	askedKey struct{} // of a *session that is set to the one on which the call goes out
	onlyKey  struct{} // of the *session that the call may go out on
)

// GetRequestMetadata implements [credentials.PerRPCCredentials]. It adds nothing
// to the call. gRPC calls it before it sends anything of the call, without a
// lock, and again for each try of it.
func (gate) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	info, _ := credentials.RequestInfoFromContext(ctx)
	s, ok := info.AuthInfo.(*session)
	if !ok {
		return nil, status.Error(codes.Internal, "call without a connection")
	}
	if asked, ok := ctx.Value(askedKey{}).(**session); ok {
		*asked = s
	}
	if only, ok := ctx.Value(onlyKey{}).(*session); ok && only != s {
		return nil, status.Error(codes.Unavailable, "the connection on which the runtime said who it is was lost")
	}
	if info.Method == runtimeapi.RuntimeService_Version_FullMethodName {
		return nil, nil //nolint:nilnil // nothing to add
	}
	return nil, s.wait(ctx)
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials].
func (gate) RequireTransportSecurity() bool { return false }

// Peer is who answered Version, on one connection.
type Peer struct {
	RuntimeVersion

	session *session
}

// Accept lets calls go out on the peer's connection. See [Config.Gated].
func (p Peer) Accept() { p.session.open() }

// Identify asks who is there, as [Client.Version] does, and keeps hold of the
// connection that the answer came on.
func (c *Client) Identify(ctx context.Context) (Peer, error) {
	var p Peer
	v, err := c.Version(context.WithValue(ctx, askedKey{}, &p.session))
	p.RuntimeVersion = v
	return p, err
}

// EventsOf opens the event stream as [Client.Events] does, on the peer's
// connection and on no other: what was decided about its version holds for who
// sends the events. The error is [Unreachable] when that connection is gone.
func (c *Client) EventsOf(ctx context.Context, p Peer) (*EventStream, error) {
	return c.Events(context.WithValue(ctx, onlyKey{}, p.session))
}
