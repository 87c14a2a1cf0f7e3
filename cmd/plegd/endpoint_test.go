package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// sockets makes one of each kind of socket that isn't a runtime.
func sockets(t *testing.T) (absent, stale, mute, frozen string) {
	t.Helper()
	dir := string(newAgentDir(t))
	listen := func(name string) net.Listener {
		lis, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lis.Close() })
		return lis
	}
	dead := listen("stale")
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = dead.Close()
	server, lis := grpc.NewServer(), listen("mute") // gRPC, but no CRI: a containerd without its plugin
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); <-served })
	listen("frozen") // the kernel accepts, nobody greets
	return filepath.Join(dir, "absent"), filepath.Join(dir, "stale"), filepath.Join(dir, "mute"), filepath.Join(dir, "frozen")
}

// The first that answers as a CRI runtime is taken; a socket file proves
// nothing.
func TestFind(t *testing.T) {
	t.Parallel()
	absent, stale, mute, frozen := sockets(t)
	_, good := simtest.Start(t, simruntime.Config{})
	_, better := simtest.Start(t, simruntime.Config{})
	log := &logtest.Buffer{}
	f := finder{[]string{absent, stale, mute, frozen, good, better}, log.Logger(), func(string) {}}
	got, err := f.find(t.Context())
	if err != nil || got != good {
		t.Errorf("found %q, %v; want %q", got, err, good)
	}
	if said := log.String(); !strings.Contains(said, fmt.Sprint("sockets=\"", f.sockets)) || !strings.Contains(said, "endpoint="+good) {
		t.Errorf("logged %s", said)
	}
}

// While none answers there are rounds, and a reason for each socket.
func TestFindInRounds(t *testing.T) {
	t.Parallel()
	absent, stale, mute, frozen := sockets(t)
	why := make(chan string, 10)
	log := &logtest.Buffer{}
	f := finder{[]string{absent, stale, mute, frozen}, log.Logger(), func(s string) { why <- s }}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type result struct {
		endpoint string
		err      error
	}
	found := make(chan result, 1)
	go func() {
		endpoint, err := f.find(ctx)
		found <- result{endpoint, err}
	}()
	reason := <-why
	for _, part := range []string{
		absent + ": not there", stale + ": ", "connection refused",
		mute + ": answers, but serves no CRI", frozen + ": no answer within 2s",
	} {
		if !strings.Contains(reason, part) {
			t.Errorf("%q is not in %q", part, reason)
		}
	}
	serveAt(t, simtest.New(t, simruntime.Config{}), absent)
	if r := <-found; r.err != nil || r.endpoint != absent {
		t.Errorf("found %q, %v", r.endpoint, r.err)
	}
	if n := strings.Count(log.String(), "no CRI runtime found, trying again for ever; name its socket with --runtime-endpoint"); n != 1 {
		t.Errorf("said %d times that there is none: %s", n, log)
	}
}

// The wait between two rounds ends with the context: there is no other round.
func TestFindEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	rounds := 0
	f := finder{[]string{"/nonexistent/x.sock"}, slog.New(slog.DiscardHandler), func(string) { rounds++; cancel() }}
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if got, err := f.find(ctx); err == nil || rounds != 1 {
			t.Errorf("found %q in %d rounds", got, rounds)
		}
		if took := time.Since(begin); took != 0 { // in virtual time: it has not slept
			t.Errorf("slept for %v", took)
		}
	})
}
