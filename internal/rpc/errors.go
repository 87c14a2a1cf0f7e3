package rpc

import (
	"context"
	"errors"
	"io"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/selection"
	"github.com/plegd/plegd/internal/watch"
)

// domain of each ErrorInfo.
var domain = string(plegdv1.File_plegd_v1_plegd_proto.Package())

// failed is a status with a reason, and what the reason says.
func failed(code codes.Code, why plegdv1.Reason, err error, says map[string]string) error {
	st := status.New(code, err.Error())
	if with, derr := st.WithDetails(&errdetails.ErrorInfo{Reason: why.String(), Domain: domain, Metadata: says}); derr == nil {
		st = with
	}
	return st.Err()
}

// invalid is the status for what a client has got wrong.
func invalid(err error) error { return status.Error(codes.InvalidArgument, err.Error()) }

// stopping is the status of what the end of the server ends.
func stopping(position string) error {
	return failed(codes.Unavailable, plegdv1.Reason_REASON_STOPPING, watch.ErrStopping, at(position))
}

// at is a position as metadata, nil for none.
func at(position string) map[string]string {
	if position == "" {
		return nil
	}
	return map[string]string{"position": position}
}

// statusOf turns an error of reading into a status.
func statusOf(err error) error {
	var expired *pleg.ExpiredError
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return nil
	case errors.As(err, &expired):
		return failed(codes.OutOfRange, plegdv1.Reason_REASON_EXPIRED, err, map[string]string{
			"asked": expired.Asked.String(), "oldest": expired.Oldest.String(), "newest": expired.Newest.String(),
		})
	case errors.Is(err, watch.ErrRequest), errors.Is(err, selection.ErrFilter):
		return invalid(err)
	case errors.Is(err, watch.ErrUnknown):
		return failed(codes.Unavailable, plegdv1.Reason_REASON_STARTING, err, nil)
	case errors.Is(err, pleg.ErrStopped):
		return stopping("")
	case errors.Is(err, pleg.ErrNoPod):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Internal, err.Error())
}
