package rpc

import (
	"container/list"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

const (
	// maxConns are open at once: two for each pod of a full node. From crowded on a
	// new one takes the place of the one that has been without a call for longest:
	// clients that keep connections for later must not keep others out.
	maxConns, crowded = 256, maxConns * 3 / 4
	// goAwayTimeout bounds what is said to those who are too many.
	goAwayTimeout = 100 * time.Millisecond
)

// crowd knows the connections.
type crowd struct {
	mu   sync.Mutex
	open int
	idle *list.List // of *guest, idle for longest first
}

// guest is one connection.
type guest struct {
	net.Conn
	crowd *crowd
	calls int           // that go on
	place *list.Element // among the idle ones; nil if it isn't
	gone  bool
}

func newCrowd() *crowd { return &crowd{idle: list.New()} }

var errCrowded = errors.New("too many connections")

// enter takes a connection in, for which another one may have to go, or closes it
// if as many as may be are in use.
func (c *crowd) enter(conn net.Conn) (*guest, error) {
	g, victim := c.admit(conn)
	if victim != nil {
		_ = victim.Conn.Close() // its transport notices
	}
	if g == nil {
		refuse(conn)
		return nil, errCrowded
	}
	return g, nil
}

// admit returns the guest, nil if there is no room, and the one that has to go for
// it, nil if none has to. That one doesn't count any more.
func (c *crowd) admit(conn net.Conn) (g, victim *guest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if oldest := c.idle.Front(); c.open >= crowded && oldest != nil {
		victim = oldest.Value.(*guest)
		victim.leave()
	}
	if c.open >= maxConns {
		return nil, victim
	}
	c.open++
	g = &guest{Conn: conn, crowd: c}
	g.place = c.idle.PushBack(g)
	return g, victim
}

// refuse tells a client of HTTP/2 that there are too many.
func refuse(conn net.Conn) {
	_ = conn.SetWriteDeadline(time.Now().Add(goAwayTimeout))
	f := http2.NewFramer(conn, nil)
	why := fmt.Sprintf("%d connections are open and in use, which is all that may be", maxConns)
	// Whether it hears it or not, it has to go.
	_ = errors.Join(f.WriteSettings(), f.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte(why)), conn.Close())
}

// begin and end are called for each call on the connection.
func (g *guest) begin() {
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	g.calls++
	g.leaveIdle()
}

func (g *guest) end() {
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	g.calls--
	if g.calls == 0 && !g.gone {
		g.place = g.crowd.idle.PushBack(g)
	}
}

func (g *guest) leaveIdle() {
	if g.place != nil {
		g.crowd.idle.Remove(g.place)
		g.place = nil
	}
}

// Close implements [net.Conn].
func (g *guest) Close() error {
	g.crowd.mu.Lock()
	g.leave()
	g.crowd.mu.Unlock()
	return g.Conn.Close()
}

// leave has the connection count no more. The caller holds the lock.
func (g *guest) leave() {
	if !g.gone {
		g.gone = true
		g.crowd.open--
		g.leaveIdle()
	}
}

// NetConn returns what is wrapped, for who asks about the peer.
func (g *guest) NetConn() net.Conn { return g.Conn }
