package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/unixsock"
)

// The errors that callers can tell apart. What came from the agent also has its
// gRPC status, see status.FromError.
var (
	// ErrExpired is wrapped by ExpiredError.
	ErrExpired = errors.New("events are no longer kept")
	// ErrNoPod: there is no such pod.
	ErrNoPod = errors.New("no such pod")
	// ErrInvalid: what was asked for is malformed.
	ErrInvalid = errors.New("invalid request")
	// ErrUnavailable: nobody answers, or the agent can't tell now. Later it may.
	ErrUnavailable = errors.New("plegd is not available")
)

// ExpiredError says that events after a position are not kept any more, or were
// never written. Go on with a snapshot. It wraps ErrExpired.
type ExpiredError struct {
	Asked  string // the position, "" if events from a time on were asked for
	Oldest string // the oldest position that can be gone on from
	Newest string // of the newest event
	text   string
}

// Error says what became of the position.
func (e *ExpiredError) Error() string { return e.text }

// Unwrap returns ErrExpired.
func (e *ExpiredError) Unwrap() error { return ErrExpired }

// SocketError says why a socket can't be connected to, and what to do. It wraps
// ErrUnavailable and what the system said, such as fs.ErrNotExist.
type SocketError struct {
	Socket string
	Err    error
	todo   string
}

// errOther is said of a socket that is not of plegd's API.
var errOther = errors.New("something else answers there")

// newSocketError finds out what to do.
func newSocketError(socket string, err error) *SocketError {
	err = unixsock.Cause(err)
	e := &SocketError{Socket: socket, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.todo = "is plegd running on this node, and does it serve on another --socket?"
	case errors.Is(err, syscall.ECONNREFUSED):
		e.todo = "plegd was killed, or is about to start: is it running?"
	case errors.Is(err, fs.ErrPermission):
		e.todo = "connect as root" + owners(socket)
	case errors.Is(err, syscall.EAGAIN):
		e.todo = "too many connections wait for it: does plegd hang?"
	default:
		e.todo = "is it plegd's?"
	}
	return e
}

// owners says who may connect, as far as the socket can be seen.
func owners(socket string) string {
	info, err := os.Stat(socket)
	if err != nil {
		return ", or have the socket moved to a directory that you may enter (plegd run --socket)"
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	gid := strconv.FormatUint(uint64(stat.Gid), 10)
	if group, err := user.LookupGroupId(gid); err == nil {
		gid = group.Name
	}
	const groupMay = 0o060 // connecting takes the right to write
	if info.Mode().Perm()&groupMay == groupMay && stat.Gid != 0 {
		return fmt.Sprintf(", or as a member of its group %s", gid)
	}
	return fmt.Sprintf(": its mode is %#o and its group %s; plegd run --socket-group lets a group in", info.Mode().Perm(), gid)
}

// Error names the socket, what is wrong and what to do.
func (e *SocketError) Error() string {
	return fmt.Sprintf("socket %s: %v: %s", e.Socket, e.Err, e.todo)
}

// Unwrap returns ErrUnavailable and what the system said.
func (e *SocketError) Unwrap() []error { return []error{ErrUnavailable, e.Err} }

// callError is what the agent said, in its own words.
type callError struct {
	socket string
	kind   error // nil if it is none of this package's
	status *status.Status
}

// Error returns the agent's words.
func (e *callError) Error() string {
	return fmt.Sprintf("plegd at %s: %s", e.socket, e.status.Message())
}

// Unwrap returns which of the package's errors it is, and the status.
func (e *callError) Unwrap() []error {
	if e.kind == nil {
		return []error{e.status.Err()}
	}
	return []error{e.kind, e.status.Err()}
}

// explain turns a gRPC error into one of this package's.
func (c *Client) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil && status.Code(err) != codes.DeadlineExceeded {
		return ctx.Err()
	}
	if brokenOff(err) {
		if why := c.probe(ctx); why != nil {
			return why // says more
		}
	}
	st := status.Convert(err)
	e := &callError{socket: c.socket, status: st}
	switch st.Code() {
	case codes.OutOfRange:
		_, of := reason(err)
		return &ExpiredError{Asked: of["asked"], Oldest: of["oldest"], Newest: of["newest"], text: e.Error()}
	case codes.NotFound:
		e.kind = ErrNoPod
	case codes.InvalidArgument:
		e.kind = ErrInvalid
	case codes.Unavailable:
		e.kind = ErrUnavailable
	case codes.ResourceExhausted:
		if why, _ := reason(err); why == plegdv1.Reason_REASON_BUSY || why == plegdv1.Reason_REASON_SLOW {
			e.kind = ErrUnavailable
		} // else too large for one side or the other
	case codes.Unimplemented, codes.PermissionDenied: // plegd's API says neither
		return &SocketError{Socket: c.socket, Err: errOther, todo: "a CRI runtime, plegd's own CRI socket or an older plegd"}
	case codes.DeadlineExceeded:
		e.kind = context.DeadlineExceeded
	case codes.Canceled:
		e.kind = context.Canceled
	default:
	}
	return e
}

// reason returns the reason that the agent gives for an error, and what it says
// with it.
func reason(err error) (plegdv1.Reason, map[string]string) {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == string(plegdv1.File_plegd_v1_plegd_proto.Package()) {
			return plegdv1.Reason(plegdv1.Reason_value[info.Reason]), info.Metadata
		}
	}
	return plegdv1.Reason_REASON_UNSPECIFIED, nil
}

// brokenOff reports whether a call ended for what became of its connection, and
// not with an answer of the agent.
func brokenOff(err error) bool {
	why, _ := reason(err)
	return status.Code(err) == codes.Unavailable && why == plegdv1.Reason_REASON_UNSPECIFIED
}
