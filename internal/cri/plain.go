package cri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxErrorText bounds what a runtime's error makes the agent log and serve. A
// runtime may send several KiB, headers of an HTTP server included.
const maxErrorText = 512

// errNotSocket: the kernel says only "connection refused" of an ordinary file.
var errNotSocket = errors.New("not a socket")

// callError is the error of a call in plain words. The error of gRPC, with its
// code, is what it wraps.
type callError struct {
	text string
	err  error
}

// Error implements error.
func (e *callError) Error() string { return e.text }

// Unwrap returns gRPC's own error.
func (e *callError) Unwrap() error { return e.err }

// GRPCStatus keeps the runtime's status as it was: status.FromError would put
// this error's text into it otherwise.
func (e *callError) GRPCStatus() *status.Status { return status.Convert(e.err) }

// sayPlainly puts the error of a call into words for who reads a log or
// /readyz. gRPC's own are about gRPC: "rpc error: code = Unavailable desc =
// connection error: desc = \"transport: Error while dialing: ...". The code
// stays what [NotFound] and the like ask for. io.EOF stays bare.
func sayPlainly(err error, socket, method string, limit time.Duration) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	method = method[strings.LastIndexByte(method, '/')+1:]
	said := text(strings.Join(strings.Fields(s.Message()), " "), maxErrorText)
	var plain string
	switch s.Code() {
	case codes.Unimplemented:
		plain = "the runtime has no " + method
		if strings.Contains(said, "unknown service") { // a containerd without its CRI plugin
			plain += ": it serves no CRI"
		}
	case codes.DeadlineExceeded:
		plain = "no answer in time"
		if limit > 0 {
			plain = fmt.Sprintf("no answer within %v", limit)
		}
	case codes.Canceled:
		plain = "the call was called off"
	case codes.Unavailable:
		plain = "runtime socket " + socket + ": " + unreachable(said)
	default:
		plain = fmt.Sprintf("%s (%s)", cmp.Or(said, "no reason given"), s.Code())
	}
	return &callError{plain, err}
}

// closedAtOnce is what somebody does who is no CRI runtime, or one that ends.
const closedAtOnce = "the connection was closed at once"

// noPermission also says what to do.
const noPermission = "permission denied (run as root, or as a member of the socket's group)"

// dialCauses are the ends of gRPC's text about a connection that could not be
// made, and what they mean. gRPC keeps no more of an error than its text.
var dialCauses = []struct{ part, means string }{
	{syscall.EACCES.Error(), noPermission},
	{syscall.EPERM.Error(), noPermission},
	{errNotSocket.Error(), "not a socket"},
	{syscall.ENOENT.Error(), "no such file"},
	{syscall.ENOTDIR.Error(), "no such file"},
	{syscall.ECONNREFUSED.Error(), "connection refused (nobody listens)"},
	{"looked like an HTTP/1.1 header", "an HTTP server answers that speaks no gRPC"},
	{"http2: frame too large", "who answers speaks no gRPC"},
	{"use of closed network connection", "nobody answers (is the runtime frozen?)"}, // connectTimeout passed
	{"error reading server preface: EOF", closedAtOnce},
	{"error reading server preface: " + syscall.ECONNRESET.Error(), closedAtOnce},
	{"error reading from server: EOF", "the connection was lost"},
	{"error reading from server: read unix", "the connection was lost"},
}

// unreachable says why there is no connection, from gRPC's text.
func unreachable(said string) string {
	if strings.Contains(said, "error reading") || strings.Contains(said, "connection error") || strings.Contains(said, "while dialing") {
		for _, c := range dialCauses {
			if strings.Contains(said, c.part) {
				return c.means
			}
		}
	}
	if strings.HasSuffix(said, "write: "+syscall.EPIPE.Error()) { // closed while we were still greeting
		return closedAtOnce
	}
	return cmp.Or(said, "no connection")
}

// notSocket says so where the kernel's refusal means only that there is another
// kind of file.
func notSocket(path string, err error) error {
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	if info, serr := os.Stat(path); serr == nil && info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%w: %w", errNotSocket, err)
	}
	return err
}

// plain is gRPC's interceptors that put errors into words.
type plain struct{ socket string }

func (p plain) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	limit := timeLeft(ctx)
	return sayPlainly(invoke(ctx, method, req, reply, cc, opts...), p.socket, method, limit)
}

func (p plain) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	limit := timeLeft(ctx)
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, sayPlainly(err, p.socket, method, limit)
	}
	return &plainStream{s, func(err error) error { return sayPlainly(err, p.socket, method, limit) }}, nil
}

// timeLeft is how long a call that begins now may take, 0 for ever. The
// context's deadline is one of Go's, so no clock but Go's can measure it.
func timeLeft(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return time.Until(deadline).Round(10 * time.Millisecond) // 10s, not 9.999987s
}

// plainStream is a stream whose errors are in words.
type plainStream struct {
	grpc.ClientStream
	say func(error) error
}

// SendMsg implements [grpc.ClientStream].
func (s *plainStream) SendMsg(m any) error { return s.say(s.ClientStream.SendMsg(m)) }

// RecvMsg implements [grpc.ClientStream].
func (s *plainStream) RecvMsg(m any) error { return s.say(s.ClientStream.RecvMsg(m)) }
