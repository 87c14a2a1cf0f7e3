package crowd

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/logtest"
)

func TestDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis := pipes{arriving: make(chan net.Conn), closed: make(chan struct{})}
		c := New(Config{Max: most, Settle: settle, Logger: (&logtest.Buffer{}).Logger()})
		d := c.Door(lis)
		in := make(chan *Guest, 2*most)
		ended := make(chan error, 1)
		go func() {
			for {
				conn, err := d.Accept()
				if err != nil {
					ended <- err
					return
				}
				in <- conn.(*Guest)
			}
		}()
		arrive := func() (client net.Conn) {
			client, server := net.Pipe()
			lis.arriving <- server
			synctest.Wait()
			return client
		}
		var guests []*Guest
		for range most {
			arrive()
			guests = append(guests, <-in)
		}
		for _, g := range guests[2:] {
			g.Begin()
		}
		guests[0].Begin()
		guests[0].End() // now guests[1] is without a call for longer
		guests[2].Begin()
		guests[2].End() // one of its two calls goes on

		// All have just come: the next one waits.
		arrive()
		if len(in) != 0 {
			t.Fatal("one more is let in")
		}
		time.Sleep(hurried)
		synctest.Wait()
		if len(in) != 1 || !isClosed(guests[1]) || isClosed(guests[0]) || isClosed(guests[2]) {
			t.Fatalf("%d are let in; closed: %v, %v, %v", len(in), isClosed(guests[0]), isClosed(guests[1]), isClosed(guests[2]))
		}
		(<-in).Begin()
		arrive()
		if len(in) != 1 || !isClosed(guests[0]) {
			t.Fatalf("%d are let in", len(in))
		}
		(<-in).Begin()

		// All are in use: the next one waits for as long as that is so.
		arrive()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(in) != 0 {
			t.Fatal("one more is let in")
		}
		_ = guests[7].Close()
		_ = guests[7].Close() // counts once
		guests[7].End()       // and its place stays taken
		synctest.Wait()
		if len(in) != 1 || c.open != most || c.idle.Len() != 1 {
			t.Fatalf("%d are let in; %d are open, %d idle", len(in), c.open, c.idle.Len())
		}
		(<-in).Begin()

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
