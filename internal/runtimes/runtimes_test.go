package runtimes_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/plegd/plegd/internal/runtimes"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// listen makes a socket whose path fits an address, unlike that of t.TempDir.
func listen(t *testing.T) *net.UnixListener {
	t.Helper()
	dir, err := os.MkdirTemp("", "rt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lis.Close() })
	return lis
}

func TestProbeTellsWhoAnswers(t *testing.T) {
	_, socket := simtest.Start(t, simruntime.Config{})
	v, err := runtimes.Probe(t.Context(), socket)
	if err != nil || v.Name != "containerd" || v.Version == "" {
		t.Errorf("%+v, %v", v, err)
	}
}

// What isn't a runtime is told apart, since each has another remedy.
func TestProbeSaysWhyThereIsNone(t *testing.T) {
	frozen := listen(t) // the kernel accepts, nobody greets
	mute := listen(t)   // gRPC, but no CRI: a containerd without its plugin
	server := grpc.NewServer()
	served := make(chan error, 1)
	go func() { served <- server.Serve(mute) }()
	t.Cleanup(func() { server.Stop(); <-served })
	stale := listen(t)
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	for _, tc := range []struct {
		name, socket, want string
	}{
		{"absent", "/nonexistent/x.sock", "not there"},
		{"stale", stale.Addr().String(), "nobody listens"},
		{"mute", mute.Addr().String(), "serves no CRI"},
		{"frozen", frozen.Addr().String(), "no answer within"},
		{"no path", "tcp", "not there"},
	} {
		_, err := runtimes.Probe(t.Context(), tc.socket)
		if err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, runtimes.ErrAbsent) != (tc.want == "not there") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
