package crowd

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/logtest"
)

const (
	most   = 8 // from six on they make room
	settle = Settle
)

// pipes is a listener at which connections arrive one by one.
type pipes struct {
	net.Listener
	arriving chan net.Conn
	closed   chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.arriving:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error {
	close(p.closed)
	return nil
}

// server is the server's end of a connection that just was made.
func server() net.Conn {
	_, conn := net.Pipe()
	return conn
}

func isClosed(g *Guest) bool {
	_ = g.SetReadDeadline(time.Now()) // fails as the read does
	_, err := g.Conn.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// Who is without a call for longest makes room; who has one never does.
func TestEnter(t *testing.T) {
	log := &logtest.Buffer{}
	c := New(Config{Max: most, Logger: log.Logger()})
	var guests []*Guest
	for range most {
		g := c.Enter(server())
		g.Begin()
		guests = append(guests, g)
	}
	for range 2 {
		if c.Enter(server()) != nil {
			t.Fatal("one more is let in")
		}
	}
	if log.Count("in use") != 1 || log.Count("room") != 0 {
		t.Errorf("log:\n%s", log)
	}
	// Their calls end, the connections stay: they are idle ones now.
	guests[1].End()
	guests[0].End()
	guests[2].Begin()
	guests[2].End() // another one goes on
	for i, victim := range []*Guest{guests[1], guests[0]} {
		g := c.Enter(server())
		if g == nil || !isClosed(victim) {
			t.Fatalf("newcomer %d: let in %v, in the place of the right one %v", i, g != nil, isClosed(victim))
		}
		g.Begin()
	}
	for _, g := range guests[2:] {
		if isClosed(g) {
			t.Fatal("a connection with a call is closed")
		}
	}
	if log.Count("room") != 0 {
		t.Errorf("log:\n%s", log)
	}
	for _, g := range guests[2:5] {
		g.End()
	}
	if log.Count("in use") != 1 || log.Count("room") != 1 {
		t.Errorf("log:\n%s", log)
	}
	_ = guests[0].Close() // it is gone already: counts no more
	if c.open != most || c.idle.Len() != 3 {
		t.Errorf("%d open, %d idle", c.open, c.idle.Len())
	}
}

// From three quarters on, and no sooner, one goes when another comes.
func TestCrowded(t *testing.T) {
	c := New(Config{Max: most, Logger: (&logtest.Buffer{}).Logger()})
	for range 3 * most {
		c.Enter(server())
	}
	if c.open != most*3/4 || c.idle.Len() != c.open {
		t.Errorf("%d open, %d idle", c.open, c.idle.Len())
	}
}

// When all that may be open are, it is enough to have said nothing for a moment, and
// the log says so once.
func TestRush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Buffer{}
		c := New(Config{Max: most, Settle: settle, Logger: log.Logger()})
		var guests []*Guest
		for range most {
			guests = append(guests, c.Enter(server()))
		}
		guests[0].Begin()
		time.Sleep(hurried - 1)
		if c.Enter(server()) != nil {
			t.Fatal("who has just come has to go")
		}
		time.Sleep(time.Nanosecond)
		for i := range most - 1 {
			guests = append(guests, c.Enter(server()))
			if guests[most+i] == nil || !isClosed(guests[1+i]) {
				t.Fatalf("newcomer %d: let in %v, in the place of the right one %v", i, guests[most+i] != nil, isClosed(guests[1+i]))
			}
		}
		if isClosed(guests[0]) || c.Enter(server()) != nil {
			t.Error("who has a call, or has just come, has to go")
		}
		if log.Count("faster") != 1 || log.Count("again") != 0 {
			t.Errorf("log:\n%s", log)
		}
		for _, g := range guests[most : most+3] {
			_ = g.Close()
		}
		if log.Count("without a call again") != 0 {
			t.Errorf("it may go on:\n%s", log)
		}
		time.Sleep(rushOver)
		_ = guests[most+3].Close()
		if log.Count("faster") != 1 || log.Count("without a call again") != 1 {
			t.Errorf("log:\n%s", log)
		}
	})
}
