package unsent

import (
	"context"
	"time"

	"google.golang.org/grpc"
)

type requestKey struct{}

// Await returns the context of a call that begins, and whose request may take so long
// to come: then the context ends, and with it the call. Else who makes calls and asks
// nothing keeps places that others need. ended is called once the call has ended. It is
// for the tap of a gRPC server, where calls begin; see Came.
func Await(ctx context.Context, limit time.Duration, ended func()) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(limit, cancel)
	context.AfterFunc(ctx, func() {
		cancel()
		late.Stop()
		ended()
	})
	return context.WithValue(ctx, requestKey{}, late)
}

// Came says that the request of a call has come, whose context is of Await, or that it
// will not.
func Came(ctx context.Context) {
	if late, ok := ctx.Value(requestKey{}).(*time.Timer); ok {
		late.Stop()
	}
}

// Asked is a stream that notices its request, see Came.
type Asked struct{ grpc.ServerStream }

// RecvMsg implements [grpc.ServerStream].
func (a Asked) RecvMsg(m any) error {
	err := a.ServerStream.RecvMsg(m)
	Came(a.Context())
	return err
}
