package unsent

import (
	"time"

	"google.golang.org/grpc"
)

// Stall is how long a client may not take a message of a stream, or not send its
// request: longer than a machine that swaps holds a program up. What it costs a client
// that is cut is to ask again.
const Stall = 30 * time.Second

// Outlet is a stream that notices when a message is not taken. Sending is for one
// goroutine, and Stalled for another one.
type Outlet struct {
	grpc.ServerStream
	limit   time.Duration
	stalled *time.Timer // fires when a message was not taken for limit
}

// NewOutlet returns an outlet whose client may take so long for a message.
func NewOutlet(stream grpc.ServerStream, limit time.Duration) *Outlet {
	o := &Outlet{ServerStream: stream, limit: limit, stalled: time.NewTimer(limit)}
	o.stalled.Stop()
	return o
}

// SendMsg implements [grpc.ServerStream]. It waits as long as the client takes
// nothing, which only the return of the handler can call off.
func (o *Outlet) SendMsg(m any) error {
	o.stalled.Reset(o.limit)
	defer o.stalled.Stop()
	return o.ServerStream.SendMsg(m)
}

// Stalled has a time when a message was not taken.
func (o *Outlet) Stalled() <-chan time.Time { return o.stalled.C }
