package criserver

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
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

func TestDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor(pipes{arriving: make(chan net.Conn), closed: make(chan struct{})})
		in := make(chan *guest, 2*maxConns)
		ended := make(chan error, 1)
		go func() {
			for {
				c, err := d.Accept()
				if err != nil {
					ended <- err
					return
				}
				in <- c.(*guest)
			}
		}()
		arrive := func() (client net.Conn) {
			client, server := net.Pipe()
			d.Listener.(pipes).arriving <- server
			synctest.Wait()
			return client
		}
		isClosed := func(g *guest) bool {
			_ = g.SetReadDeadline(time.Now()) // fails as the read does
			_, err := g.Conn.Read(make([]byte, 1))
			return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
		}
		var guests []*guest
		for range maxConns {
			arrive()
			guests = append(guests, <-in)
		}
		for _, g := range guests[2:] {
			g.begin()
		}
		guests[0].begin()
		guests[0].end() // now guests[1] is without a call for longer
		guests[2].begin()
		guests[2].end() // one of its two calls goes on

		// All have just come: the next one waits.
		arrive()
		if len(in) != 0 {
			t.Fatal("one more is let in")
		}
		time.Sleep(settle)
		synctest.Wait()
		if len(in) != 1 || !isClosed(guests[1]) || isClosed(guests[0]) || isClosed(guests[2]) {
			t.Fatalf("%d are let in; closed: %v, %v, %v", len(in), isClosed(guests[0]), isClosed(guests[1]), isClosed(guests[2]))
		}
		(<-in).begin()
		arrive()
		if len(in) != 1 || !isClosed(guests[0]) {
			t.Fatalf("%d are let in", len(in))
		}
		(<-in).begin()

		// All are in use: the next one waits for as long as that is so.
		arrive()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(in) != 0 {
			t.Fatal("one more is let in")
		}
		_ = guests[7].Close()
		_ = guests[7].Close() // counts once
		guests[7].end()       // and its place stays taken
		synctest.Wait()
		if len(in) != 1 || d.open != maxConns || d.idle.Len() != 1 {
			t.Fatalf("%d are let in; %d are open, %d idle", len(in), d.open, d.idle.Len())
		}
		(<-in).begin()

		// The end doesn't wait for a place.
		client := arrive()
		_ = d.Close()
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		default:
			t.Fatal("it does not end")
		}
		if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("who waits is not sent away")
		}
	})
}
