package simruntime

import (
	"net"
	"sync"
)

// gate stands before everything that a runtime's process reads from its
// connections and writes to them. Shut, it is that process under SIGSTOP: the
// kernel goes on accepting connections and data, and nobody takes them.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

// shut closes the gate unless it is.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		g.open = make(chan struct{})
	default:
	}
}

// unshut opens the gate unless it is.
func (g *gate) unshut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// state returns a channel that is closed once the gate is open.
func (g *gate) state() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

func (g *gate) isShut() bool {
	select {
	case <-g.state():
		return false
	default:
		return true
	}
}

// watchedListener is a listener whose connections are behind the gate, and
// whose pings are counted.
type watchedListener struct {
	net.Listener
	r      *Runtime
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	conns map[*watchedConn]struct{} // that are open
	dead  bool
}

func (r *Runtime) watched(lis net.Listener) *watchedListener {
	return &watchedListener{Listener: lis, r: r, closed: make(chan struct{}), conns: map[*watchedConn]struct{}{}}
}

// Accept hands over a connection that was made. A client's connect succeeds
// while the gate is shut, as it does in the backlog of a stopped process.
func (l *watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case <-l.r.gate.state():
		return l.watch(conn), nil
	case <-l.closed:
		_ = conn.Close()
		return nil, net.ErrClosed
	}
}

func (l *watchedListener) watch(conn net.Conn) *watchedConn {
	c := &watchedConn{
		Conn: conn, lis: l, closed: make(chan struct{}),
		meter: newPingMeter(&l.r.pings, l.r.cfg.KeepaliveMinTime),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = c.Conn.Close()
	} else {
		l.conns[c] = struct{}{}
	}
	return c
}

// hangUp closes all connections and those to come. The server itself doesn't
// close one whose client hasn't greeted yet, but waits for two minutes.
func (l *watchedListener) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	for c := range l.conns {
		_ = c.Conn.Close()
	}
}

func (l *watchedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// watchedConn is a connection behind the gate.
type watchedConn struct {
	net.Conn
	lis    *watchedListener
	meter  *pingMeter
	closed chan struct{}
	once   sync.Once
}

// pass waits for the gate, or for the end of the connection or its listener,
// which no gate holds up: a process that is stopped can be killed.
func (c *watchedConn) pass() error {
	open := c.lis.r.gate.state()
	select {
	case <-open:
		return nil
	default:
	}
	select {
	case <-open:
		return nil
	case <-c.closed:
	case <-c.lis.closed:
	}
	return net.ErrClosed
}

// Read waits after reading too: what came in while it waited for data is not
// looked at by a process that has been stopped since.
func (c *watchedConn) Read(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	if passErr := c.pass(); passErr != nil {
		return 0, passErr
	}
	c.meter.read(b[:n])
	return n, err
}

func (c *watchedConn) Write(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	c.meter.wrote(b) // before the client can answer with a ping
	return c.Conn.Write(b)
}

func (c *watchedConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.lis.mu.Lock()
		defer c.lis.mu.Unlock()
		delete(c.lis.conns, c)
	})
	return c.Conn.Close()
}

// Freeze stops the runtime as SIGSTOP stops its process: connections stay open
// and new ones are made, but nothing is read from them, answered or sent until
// Thaw, when all goes on where it was. What was being written at that moment
// may still arrive. Containers live on; direct calls are as if the runtime had
// carried them out just before. Freezing what is frozen changes nothing, and a
// Down or Kill of a frozen runtime ends it all the same: what starts afterwards
// isn't frozen.
func (r *Runtime) Freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.up {
		r.gate.shut()
	}
}

// Thaw lets a frozen runtime go on, as SIGCONT does.
func (r *Runtime) Thaw() { r.gate.unshut() }

// Frozen says whether the runtime is frozen.
func (r *Runtime) Frozen() bool { return r.gate.isShut() }
