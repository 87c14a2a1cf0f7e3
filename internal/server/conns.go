package server

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// crowded is from how many connections on idle ones are closed, the one that
// has been idle for longest first: clients that keep connections for later must
// not keep others from asking whether the agent is alive.
const crowded = maxConns * 3 / 4

// conns knows the connections of one http.Server.
type conns struct {
	mu   sync.Mutex
	open int
	idle *list.List                 // of net.Conn, idle for longest first
	at   map[net.Conn]*list.Element // where an idle one is
}

func newConns() *conns { return &conns{idle: list.New(), at: map[net.Conn]*list.Element{}} }

// changed is the server's ConnState hook.
func (c *conns) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.at[conn]; e != nil {
		c.idle.Remove(e)
		delete(c.at, conn)
	}
	switch state {
	case http.StateNew:
		c.open++
	case http.StateClosed, http.StateHijacked:
		c.open--
	case http.StateIdle:
		c.at[conn] = c.idle.PushBack(conn)
	}
	if oldest := c.idle.Front(); c.open >= crowded && oldest != nil {
		victim := oldest.Value.(net.Conn) // nothing else is in it
		c.idle.Remove(oldest)
		delete(c.at, victim)
		_ = victim.Close() // its server notices and reports it closed
	}
}
