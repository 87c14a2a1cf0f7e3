package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// Errors are about the runtime and its socket, in words, and keep their code.
func TestErrorsAreInPlainWords(t *testing.T) {
	dial := func(why string) error {
		return status.Errorf(codes.Unavailable, "connection error: desc = %q", "transport: Error while dialing: dial unix /x.sock: connect: "+why)
	}
	preface := func(why string) error {
		return status.Errorf(codes.Unavailable, "connection error: desc = %q", "error reading server preface: "+why)
	}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{dial("permission denied"), "runtime socket /x.sock: permission denied (run as root, or as a member of the socket's group)"},
		{dial("no such file or directory"), "runtime socket /x.sock: no such file"},
		{dial("not a directory"), "runtime socket /x.sock: no such file"},
		{dial("connection refused"), "runtime socket /x.sock: connection refused (nobody listens)"},
		{status.Errorf(codes.Unavailable, "connection error: desc = %q", "transport: Error while dialing: not a socket: dial unix /x.sock: connect: connection refused"),
			"runtime socket /x.sock: not a socket"},
		{preface("http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"),
			"runtime socket /x.sock: an HTTP server answers that speaks no gRPC"},
		{preface("http2: frame too large"), "runtime socket /x.sock: who answers speaks no gRPC"},
		{preface("connection reset by peer"), "runtime socket /x.sock: the connection was closed at once"},
		{preface("raw-read unix @->/x.sock: use of closed network connection"), "runtime socket /x.sock: nobody answers (is the runtime frozen?)"},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), "runtime socket /x.sock: the connection was lost"},
		{status.Error(codes.Unavailable, "server is shutting down"), "runtime socket /x.sock: server is shutting down"},
		// What the runtime itself says of a file is not about its socket.
		{status.Error(codes.Unavailable, "shim: no such file or directory"), "runtime socket /x.sock: shim: no such file or directory"},
		{status.Error(codes.Unavailable, ""), "runtime socket /x.sock: no connection"},
		{status.Error(codes.Unimplemented, "method GetContainerEvents not implemented"), "the runtime has no GetContainerEvents"},
		{status.Error(codes.Unimplemented, "unknown service runtime.v1.RuntimeService"), "the runtime has no GetContainerEvents: it serves no CRI"},
		{status.Error(codes.DeadlineExceeded, "context deadline exceeded"), "no answer within 10s"},
		{status.FromContextError(context.Canceled).Err(), "the call was called off"},
		{status.Error(codes.NotFound, "no\ncontainer \"x\""), `no container "x" (NotFound)`},
		{status.Error(codes.Unknown, ""), "no reason given (Unknown)"},
		{status.Error(codes.Internal, strings.Repeat("x", 64<<10)), strings.Repeat("x", maxErrorText) + " (Internal)"},
		{errors.New("not of gRPC"), "not of gRPC"},
		{io.EOF, "EOF"},
	} {
		got := sayPlainly(tc.err, "/x.sock", "/runtime.v1.RuntimeService/GetContainerEvents", 10*time.Second)
		if got.Error() != tc.want {
			t.Errorf("%v\n got %q\nwant %q", tc.err, got, tc.want)
		}
		if !errors.Is(got, tc.err) || status.Code(got) != status.Code(tc.err) || status.Convert(got).Message() != status.Convert(tc.err).Message() {
			t.Errorf("%v: the status is %v", tc.err, status.Convert(got))
		}
		wrapped := fmt.Errorf("version: %w", got)
		for name, helper := range map[string]func(error) bool{"NotFound": NotFound, "Unimplemented": Unimplemented, "Unreachable": Unreachable, "TimedOut": TimedOut, "TooLarge": TooLarge} {
			if helper(wrapped) != helper(tc.err) {
				t.Errorf("%v: %s is %v", tc.err, name, helper(wrapped))
			}
		}
	}
	if err := sayPlainly(nil, "/x.sock", "m", 0); err != nil {
		t.Errorf("no error became %v", err)
	}
	if err := sayPlainly(io.EOF, "/x.sock", "m", 0); err != io.EOF { //nolint:errorlint // it must stay bare
		t.Errorf("EOF became %#v", err)
	}
}

// The texts of gRPC and the kernel are as the table above has them.
func TestUnreachableSocketsAreToldApart(t *testing.T) {
	dir, err := os.MkdirTemp("", "plain") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	listen := func(name string) net.Listener {
		lis, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lis.Close() })
		return lis
	}
	stale := listen("stale")
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = stale.Close()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	web, served := &http.Server{ReadHeaderTimeout: time.Second}, make(chan error, 1)
	lis := listen("web")
	go func() { served <- web.Serve(lis) }()
	t.Cleanup(func() { _ = web.Close(); <-served })
	listen("frozen")
	for name, want := range map[string]string{
		"absent": "no such file", "stale": "connection refused (nobody listens)", "file": "not a socket", "file/x": "no such file",
		"web": "an HTTP server answers that speaks no gRPC",
	} {
		path := filepath.Join(dir, name)
		c := client(t, path)
		said := func(what string, err error) bool {
			return Unreachable(err) && err.Error() == what+": runtime socket "+path+": "+want
		}
		if _, err := c.Version(t.Context()); !said("version", err) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := c.Events(t.Context()); !said("event stream", err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := client(t, filepath.Join(dir, "frozen"), func(cfg *Config) { cfg.RPCTimeout = 150 * time.Millisecond })
	if _, err := c.ListPodSandbox(t.Context(), nil); !TimedOut(err) || err.Error() != "list of sandboxes: no answer within 150ms" {
		t.Errorf("frozen: %v", err)
	}
	_, path := simtest.Start(t, simruntime.Config{Profile: simruntime.Profile{Name: "containerd", Version: "1.6.20", NoEvents: true}})
	s, err := client(t, path).Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !Unimplemented(err) || err.Error() != "the runtime has no GetContainerEvents" {
		t.Errorf("no stream: %v", err)
	}
}
