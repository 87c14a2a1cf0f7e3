package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/sysclock"
)

// usualSockets are where runtimes listen if nobody configured them otherwise,
// in the order in which they are tried.
var usualSockets = []string{
	"/run/containerd/containerd.sock",
	"/run/crio/crio.sock",
	"/var/run/cri-dockerd.sock",
	"/run/k3s/containerd/containerd.sock",
}

const (
	// probeTimeout is enough for a runtime on a busy machine.
	probeTimeout = 2 * time.Second
	// roundFirst and roundMost space the rounds while no runtime answers.
	roundFirst, roundMost = time.Second, 15 * time.Second
)

// finder looks for the runtime of a node where nobody named it.
type finder struct {
	sockets []string
	log     *slog.Logger
	tell    func(why string) // is told why there is none, after each round
}

// find tries the sockets in their order, in rounds, until one answers as a CRI
// runtime. A socket file proves nothing: it may be stale, or belong to a
// containerd without its CRI plugin.
func (f finder) find(ctx context.Context) (endpoint string, err error) {
	f.log.Info("looking for a runtime", "sockets", f.sockets)
	rounds := backoff.NewExponentialBackOff(backoff.WithInitialInterval(roundFirst),
		backoff.WithMaxInterval(roundMost), backoff.WithMaxElapsedTime(0))
	said := ""
	for {
		var why []string
		for _, socket := range f.sockets {
			v, err := probe(ctx, socket)
			if err == nil {
				f.log.Info("found a runtime", "endpoint", socket, "runtime", v.Name, "version", v.Version)
				return socket, nil
			}
			why = append(why, socket+": "+err.Error())
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		reason := "no CRI runtime found: " + strings.Join(why, "; ")
		f.tell(reason)
		if reason != said {
			f.log.Warn("no CRI runtime found, trying again for ever", "reason", strings.Join(why, "; "))
			said = reason
		}
		sleep(ctx, rounds.NextBackOff())
	}
}

// probe asks who listens on a socket. The error is short: it goes into a list.
func probe(ctx context.Context, socket string) (cri.RuntimeVersion, error) {
	if _, err := os.Stat(socket); errors.Is(err, os.ErrNotExist) {
		return cri.RuntimeVersion{}, errors.New("not there")
	}
	client, err := cri.Dial(cri.Config{Endpoint: socket, RPCTimeout: probeTimeout, Clock: sysclock.New()})
	if err != nil {
		return cri.RuntimeVersion{}, err
	}
	defer client.Close()
	v, err := client.Version(ctx)
	switch {
	case cri.Unimplemented(err):
		return v, errors.New("answers, but serves no CRI (is the CRI plugin disabled?)")
	case cri.TimedOut(err):
		return v, fmt.Errorf("no answer within %v", probeTimeout)
	}
	return v, err
}
