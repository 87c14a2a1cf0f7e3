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
	// maxConns are open at once: two for each pod of a full node. From crowded on
	// those without a call are closed, the one that has been so for longest first:
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

// enter takes a connection in, or closes it if there are too many.
func (c *crowd) enter(conn net.Conn) (*guest, error) {
	c.mu.Lock()
	if c.open >= maxConns {
		c.mu.Unlock()
		refuse(conn)
		return nil, errCrowded
	}
	c.open++
	g := &guest{Conn: conn, crowd: c}
	var victim *guest
	if oldest := c.idle.Front(); c.open > crowded && oldest != nil {
		victim = oldest.Value.(*guest)
	}
	g.place = c.idle.PushBack(g)
	c.mu.Unlock()
	if victim != nil {
		_ = victim.Close() // its transport notices
	}
	return g, nil
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
	if !g.gone {
		g.gone = true
		g.crowd.open--
		g.leaveIdle()
	}
	g.crowd.mu.Unlock()
	return g.Conn.Close()
}

// NetConn returns what is wrapped, for who asks about the peer.
func (g *guest) NetConn() net.Conn { return g.Conn }
