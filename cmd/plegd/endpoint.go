package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/retry"
	"github.com/plegd/plegd/internal/runtimes"
	"github.com/plegd/plegd/store"
)

// usualSockets is where a runtime is looked for that nobody named. Only tests
// replace it.
var usualSockets = runtimes.Usual()

// roundFirst and roundMost space the rounds while no runtime answers.
const roundFirst, roundMost = time.Second, 15 * time.Second

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
	rounds := retry.Delays(roundFirst, roundMost)
	said := ""
	for {
		var why []string
		for _, socket := range f.sockets {
			v, err := runtimes.Probe(ctx, socket)
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

// knownEndpoint returns the endpoint of the runtime that the state describes,
// "" where there is no state or it can't be told. That runtime is waited for
// like one that was named: at a boot another one on the node may answer first,
// and for that one the state would be refused.
func knownEndpoint(stateDir string, log *slog.Logger) (string, error) {
	id, err := store.ReadRuntime(stateDir)
	switch {
	case errors.Is(err, store.ErrLocked), errors.Is(err, store.ErrNewerSchema):
		return "", err // whichever runtime it is, there is no opening it
	case err != nil:
		// None, or one that opening it will say more about.
		log.Debug("the state names no runtime", "error", err)
		return "", nil
	}
	if _, err := cri.ParseEndpoint(id.Endpoint); err != nil || id.Name == "" {
		return "", nil //nolint:nilerr // none has answered yet
	}
	log.Info("going on with the runtime that the state describes", "endpoint", id.Endpoint)
	return id.Endpoint, nil
}
