// Package runtimes knows where CRI runtimes listen and asks who does. It is
// for whoever has to find one: `plegd run` without an endpoint, and `make run`.
package runtimes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/sysclock"
)

// Usual returns where runtimes listen if nobody configured them otherwise, in
// the order in which they are to be tried.
func Usual() []string {
	return []string{
		"/run/containerd/containerd.sock",
		"/run/crio/crio.sock",
		"/var/run/cri-dockerd.sock",
		"/run/k3s/containerd/containerd.sock",
	}
}

// ErrAbsent: there is no file at the socket's path.
var ErrAbsent = errors.New("not there")

// probeTimeout is enough for a runtime on a busy machine, and for a person who
// waits.
const probeTimeout = 2 * time.Second

// Probe asks who listens on a socket. A file proves nothing: it may be stale,
// or belong to a containerd without its CRI plugin. The error is short, for a
// list of sockets, and says what to do where that can be said.
func Probe(ctx context.Context, socket string) (cri.RuntimeVersion, error) {
	// gRPC would say only that it can't connect.
	if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
		return cri.RuntimeVersion{}, ErrAbsent
	}
	client, err := cri.Dial(cri.Config{Endpoint: socket, RPCTimeout: probeTimeout, Clock: sysclock.New()})
	if err != nil {
		return cri.RuntimeVersion{}, err
	}
	defer client.Close()
	v, err := client.Version(ctx)
	if err = explain(err); err != nil {
		// Whoever lists sockets has named this one.
		if _, why, ok := strings.Cut(err.Error(), socket+": "); ok {
			err = errors.New(why)
		}
	}
	return v, err
}

// explain says in few words why a runtime can't be used.
func explain(err error) error {
	switch {
	case err == nil:
		return nil
	case cri.Unimplemented(err):
		return errors.New("answers, but serves no CRI (is the CRI plugin disabled?)")
	case cri.TimedOut(err):
		return fmt.Errorf("no answer within %v", probeTimeout)
	case strings.Contains(err.Error(), syscall.ECONNREFUSED.Error()):
		return errors.New("connection refused: nobody listens, the runtime has ended")
	}
	return err
}
