package cri

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrAnswer is wrapped by the error for an answer that lacks what was asked
// for or is about something else. It says nothing about the entity.
var ErrAnswer = errors.New("unusable answer")

// ErrMalformed is wrapped by the error for a message of the event stream that
// could not be decoded. The stream goes on.
var ErrMalformed = errors.New("undecodable message")

// NotFound reports whether the runtime said by code that the entity asked for
// does not exist. Old CRI-O wraps its "not found" texts in code Unknown; those
// are errors like any other (kubernetes/kubernetes#107670).
func NotFound(err error) bool { return is(err, codes.NotFound) }

// Unimplemented reports whether the runtime does not know the method.
func Unimplemented(err error) bool { return is(err, codes.Unimplemented) }

// Unreachable reports whether the call failed for want of a connection: the
// socket is missing, refuses, or closed under the call.
func Unreachable(err error) bool { return is(err, codes.Unavailable) }

// TooLarge reports whether an answer was over the receive limit, or over the
// runtime's own limit for sending (kubernetes/kubernetes#63858).
func TooLarge(err error) bool { return is(err, codes.ResourceExhausted) }

// TimedOut reports whether the call's deadline passed.
func TimedOut(err error) bool {
	return is(err, codes.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

func is(err error, code codes.Code) bool {
	if err == nil {
		return false
	}
	s, ok := status.FromError(err) // looks through wrapping
	return ok && s.Code() == code
}
