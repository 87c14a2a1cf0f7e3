package simruntime

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var (
	// ErrNotFound is returned for an id the runtime doesn't know. Over gRPC it
	// is code NotFound.
	ErrNotFound = errors.New("not found")

	// ErrState is returned for a call that the object's state doesn't allow,
	// such as starting a container twice. Over gRPC it is code Unknown, which
	// is what containerd makes of most of its errors.
	ErrState = errors.New("wrong state")

	// ErrReserved is returned when a pod or container of the same name and
	// attempt exists. Over gRPC it is code Unknown, as in containerd.
	ErrReserved = errors.New("name is reserved")

	// ErrStartFailed is returned by StartContainer for a container that was
	// made to fail, and by CreateContainer where that fails already
	// (Profile.ForgetsFailedStarts). Over gRPC it is code Unknown.
	ErrStartFailed = errors.New("start failed")

	// ErrDown is returned while the runtime is down for every change that
	// needs it. Over gRPC the connection is refused instead.
	ErrDown = errors.New("runtime is down")

	// ErrRule is returned by AddRule for a rule that contradicts itself.
	ErrRule = errors.New("contradictory rule")
)

// errEndOK ends a call or stream with code OK and no (further) answer.
var errEndOK = errors.New("ended by a rule")

// errStopping is what a call in flight gets when the runtime goes down.
var errStopping = status.Error(codes.Unavailable, "runtime is stopping")

// toStatus gives an error the code that containerd would have sent.
func toStatus(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNotFound):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, ErrDown):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Unknown, err.Error())
}
