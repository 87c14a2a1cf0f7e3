package criserver

import (
	"container/list"
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/plegd/plegd/internal/note"
)

// settle is how long a connection has to be without a call before it may be
// closed: a new one is about to make one, and the answer to the last one may be
// on its way.
const settle = time.Second

// door is a listener that lets maxConns in. When there are so many, a new one
// takes the place of the one that is without a call for longest, and waits while
// there is none. Connections that have said nothing yet are without a call.
type door struct {
	net.Listener
	changed chan struct{} // capacity 1: there may be a place
	closed  chan struct{}
	once    sync.Once

	mu   sync.Mutex
	open int
	idle *list.List // of *guest, without a call for longest first
}

// guest is a connection that was let in.
type guest struct {
	net.Conn
	door *door

	// What follows is the door's.
	calls int           // that go on
	place *list.Element // among the idle ones; nil if it isn't one
	since time.Time     // when it became idle
	gone  bool
}

func newDoor(lis net.Listener) *door {
	return &door{Listener: lis, changed: make(chan struct{}, 1), closed: make(chan struct{}), idle: list.New()}
}

// Accept implements [net.Listener]. It is for one goroutine.
func (d *door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for {
		if g := d.enter(conn); g != nil {
			return g, nil
		}
		select {
		case <-d.changed:
		case <-time.After(settle): // one that is idle may have settled
		case <-d.closed:
			_ = conn.Close() // nobody has spoken with it
			return nil, net.ErrClosed
		}
	}
}

// Close implements [net.Listener].
func (d *door) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Listener.Close()
}

// enter lets a connection in, or returns nil.
func (d *door) enter(conn net.Conn) *guest {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open >= maxConns {
		oldest := d.idle.Front()
		if oldest == nil {
			return nil
		}
		victim := oldest.Value.(*guest) // nothing else is in it
		if time.Since(victim.since) < settle {
			return nil
		}
		victim.leave()
		_ = victim.Conn.Close() // its transport notices
	}
	d.open++
	g := &guest{Conn: conn, door: d}
	g.rest()
	return g
}

// begin and end are called for each call on the connection.
func (g *guest) begin() {
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	g.calls++
	g.leaveIdle()
}

func (g *guest) end() {
	g.door.mu.Lock()
	defer g.door.mu.Unlock()
	if g.calls--; g.calls == 0 && !g.gone {
		g.rest()
	}
}

// Close implements [net.Conn].
func (g *guest) Close() error {
	g.door.mu.Lock()
	g.leave()
	g.door.mu.Unlock()
	return g.Conn.Close()
}

// rest puts it among the idle ones. The door is locked, here and below.
func (g *guest) rest() {
	g.since = time.Now()
	g.place = g.door.idle.PushBack(g)
}

func (g *guest) leaveIdle() {
	if g.place != nil {
		g.door.idle.Remove(g.place)
		g.place = nil
	}
}

func (g *guest) leave() {
	g.leaveIdle()
	if !g.gone {
		g.gone = true
		g.door.open--
		note.Leave(g.door.changed)
	}
}

// named lets a call know its connection. It checks nothing: the mode and the
// group of the socket have.
type named struct {
	credentials.TransportCredentials
}

func newNamed() named { return named{insecure.NewCredentials()} }

// ServerHandshake implements [credentials.TransportCredentials].
func (n named) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	g, _ := conn.(*guest) // of a door
	return conn, guestInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, g}, nil
}

// Clone implements [credentials.TransportCredentials].
func (n named) Clone() credentials.TransportCredentials { return newNamed() }

// guestInfo is a connection, for its calls.
type guestInfo struct {
	credentials.CommonAuthInfo
	guest *guest
}

// AuthType implements [credentials.AuthInfo].
func (guestInfo) AuthType() string { return "unix" }

// count tells a call's connection of its beginning and its end.
func count(ctx context.Context, _ *tap.Info) (context.Context, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(guestInfo); ok && info.guest != nil {
			info.guest.begin()
			context.AfterFunc(ctx, info.guest.end)
		}
	}
	return ctx, nil
}
