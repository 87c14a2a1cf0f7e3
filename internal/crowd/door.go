package crowd

import (
	"net"
	"sync"
	"time"
)

// door is a listener that lets in who finds a place, one after the other.
type door struct {
	net.Listener
	crowd  *Crowd
	closed chan struct{}
	close  func()
}

// Door returns a listener whose connections are guests. While there is no place
// the next one waits, and those after it wait with lis.
func (c *Crowd) Door(lis net.Listener) net.Listener {
	d := &door{Listener: lis, crowd: c, closed: make(chan struct{})}
	d.close = sync.OnceFunc(func() { close(d.closed) })
	return d
}

// Accept implements [net.Listener]. It is for one goroutine.
func (d *door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for {
		if g := d.crowd.Enter(conn); g != nil {
			return g, nil
		}
		select {
		case <-d.crowd.changed:
		case <-time.After(hurried): // one may have been idle for long enough
		case <-d.closed:
			_ = conn.Close() // nobody has spoken with it
			return nil, net.ErrClosed
		}
	}
}

// Close implements [net.Listener].
func (d *door) Close() error {
	d.close()
	return d.Listener.Close()
}
