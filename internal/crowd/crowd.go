package crowd

import (
	"container/list"
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/note"
)

// Settle is how long the servers leave a connection alone without a call: clients expect
// none to close one that they are about to use.
const Settle = time.Second

// hurried is how long a connection is left alone without a call when no other one
// could come in without its place. Who has connected to make a call does so at once;
// with 128 places it lets 2,560 others in each second.
const hurried = 50 * time.Millisecond

// rushOver is how long ago the last connection was closed so soon when that is over.
const rushOver = 10 * time.Second

// Config says how many connections there may be. All of it is required.
type Config struct {
	// Max are open at once. From three quarters of them on, those without a call make
	// room; one with a call never does.
	Max int
	// Settle is how long a connection has to be without a call before it is closed
	// for another one: a new one is about to make one, and the answer to its last one
	// may be on its way. While Max are open it is 50 ms, if Settle is longer.
	Settle time.Duration
	// Logger is told when connections find all that may be open in use, or come so
	// fast that others are closed before they have settled, and when that is over.
	Logger *slog.Logger
}

// Crowd is the connections of a server.
type Crowd struct {
	cfg     Config
	crowded int           // from how many on connections make room
	changed chan struct{} // capacity 1: there may be a place

	mu   sync.Mutex
	open int
	idle *list.List // of *Guest, without a call for longest first
	full bool       // connections find no place
	rush time.Time  // the last one was closed before it has settled; zero once it is over
}

// Guest is a connection that was let in. One that has made no call yet is without
// one.
type Guest struct {
	net.Conn
	crowd *Crowd
	ctx   context.Context // ends with it
	end   context.CancelFunc

	// What follows is the crowd's.
	calls int           // that go on
	place *list.Element // among the idle ones; nil if it isn't one
	since time.Time     // when it became idle
	gone  bool
}

// New returns a crowd of nobody.
func New(cfg Config) *Crowd {
	return &Crowd{cfg: cfg, crowded: cfg.Max * 3 / 4, changed: make(chan struct{}, 1), idle: list.New()}
}

// Enter lets a connection in, for which another one may have to go. It returns nil
// if there is no place.
func (c *Crowd) Enter(conn net.Conn) *Guest {
	g, victim := c.admit(conn)
	if victim != nil {
		_ = victim.Conn.Close() // its server notices
	}
	return g
}

// admit returns the guest, nil if there is no place, and the one that has to go
// for it, nil if none has to. That one doesn't count any more.
func (c *Crowd) admit(conn net.Conn) (g, victim *Guest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if oldest := c.idle.Front(); c.open >= c.crowded && oldest != nil {
		v := oldest.Value.(*Guest) // nothing else is in it
		switch idle := time.Since(v.since); {
		case idle >= c.cfg.Settle:
			victim = v
		case idle >= hurried && c.open >= c.cfg.Max:
			victim = v
			if c.rush.IsZero() {
				c.cfg.Logger.Warn("connections come faster than there is room for, so that those without a call are closed soon", "connections", c.open)
			}
			c.rush = time.Now()
		}
		if victim != nil {
			v.leave()
		}
	}
	if c.open >= c.cfg.Max {
		if c.idle.Len() == 0 && !c.full {
			c.full = true
			c.cfg.Logger.Warn("all connections that may be open are in use, so that no other one is served", "connections", c.open)
		}
		return nil, victim
	}
	c.open++
	g = &Guest{Conn: conn, crowd: c}
	g.ctx, g.end = context.WithCancel(context.Background())
	g.rest()
	return g, victim
}

// Begin says that a call begins on the connection.
func (g *Guest) Begin() {
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	g.calls++
	g.leaveIdle()
}

// End says that a call ends. There is one for each Begin, also if the connection
// was closed in between.
func (g *Guest) End() {
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	if g.calls--; g.calls == 0 && !g.gone {
		g.rest()
	}
}

// Context ends when the connection is closed from here, as its server does when
// the client has gone.
func (g *Guest) Context() context.Context { return g.ctx }

// Close implements [net.Conn].
func (g *Guest) Close() error {
	g.crowd.mu.Lock()
	g.leave()
	g.crowd.mu.Unlock()
	return g.Conn.Close()
}

// NetConn returns what is wrapped, for who asks about the peer.
func (g *Guest) NetConn() net.Conn { return g.Conn }

// rest puts it among the idle ones. The crowd is locked, here and below.
func (g *Guest) rest() {
	g.since = time.Now()
	g.place = g.crowd.idle.PushBack(g)
	g.crowd.eased()
}

func (g *Guest) leaveIdle() {
	if g.place != nil {
		g.crowd.idle.Remove(g.place)
		g.place = nil
	}
}

// leave has it count no more.
func (g *Guest) leave() {
	g.leaveIdle()
	if !g.gone {
		g.gone = true
		g.end()
		g.crowd.open--
		g.crowd.eased()
	}
}

// eased says when a trouble is over, which is not at once: else it would begin and
// end all the time. It has who waits look again.
func (c *Crowd) eased() {
	note.Leave(c.changed)
	if !c.rush.IsZero() && c.open < c.crowded && time.Since(c.rush) >= rushOver {
		c.rush = time.Time{}
		c.cfg.Logger.Info("connections may be without a call again", "connections", c.open)
	}
	if used := c.open - c.idle.Len(); c.full && used < c.crowded {
		c.full = false
		c.cfg.Logger.Info("there is room for connections again", "used", used)
	}
}
