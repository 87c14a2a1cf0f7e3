package unsent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/plegd/plegd/internal/unsent"
)

// gated is a stream whose client takes a message for each that is in the gate.
type gated struct {
	grpc.ServerStream
	gate chan struct{}
}

func (g gated) SendMsg(any) error {
	<-g.gate
	return nil
}

// A message that isn't taken for the limit is noticed, and no other time counts.
func TestOutlet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Minute
		gate := make(chan struct{})
		o := unsent.NewOutlet(gated{gate: gate}, limit)
		sent := make(chan error)
		send := func() { sent <- o.SendMsg(nil) }
		stalled := func() bool {
			select {
			case <-o.Stalled():
				return true
			default:
				return false
			}
		}
		time.Sleep(2 * limit) // nothing is sent
		for range 3 {
			go send()
			time.Sleep(limit - time.Nanosecond)
			gate <- struct{}{}
			if err := <-sent; err != nil {
				t.Error(err)
			}
			time.Sleep(2 * limit) // nothing is sent
		}
		if stalled() {
			t.Error("a client that takes all in time counts as stalled")
		}
		go send()
		time.Sleep(limit)
		if !stalled() {
			t.Error("one that doesn't is not noticed")
		}
		gate <- struct{}{}
		<-sent
	})
}
