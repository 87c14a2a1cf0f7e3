package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/retry"
	"github.com/plegd/plegd/internal/runtimes"
	"github.com/plegd/plegd/store"
)

// usualSockets is where a runtime is looked for that nobody named. Only tests
// replace it.
var usualSockets = runtimes.Usual()

// endpointFlag adds --runtime-endpoint. otherwise is where else a runtime is looked for before
// the usual sockets.
func endpointFlag(f *pflag.FlagSet, p *string, otherwise string) {
	f.StringVar(p, "runtime-endpoint", "", "CRI socket, unix:///path or /path (default: "+endpointEnv+", "+otherwise+"else the usual sockets)")
}

// namedEndpoint fills in the runtime's socket from the environment where
// --runtime-endpoint doesn't name it, checks it, and returns which of them it is from:
// "" where nobody named one.
func namedEndpoint(f *pflag.FlagSet, getenv func(string) string, endpoint *string) (from string, err error) {
	if f.Changed("runtime-endpoint") {
		from = "--runtime-endpoint"
	} else if env := getenv(endpointEnv); env != "" {
		*endpoint, from = env, endpointEnv
	}
	if from == "" {
		return "", nil
	}
	return from, checkEndpoint(from, *endpoint)
}

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
			f.log.Warn("no CRI runtime found, trying again for ever; name its socket with --runtime-endpoint", "reason", strings.Join(why, "; "))
			said = reason
		}
		_ = retry.Sleep(ctx, rounds.NextBackOff())
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

// anyRuntime returns the first of the usual sockets on which a runtime answers.
func anyRuntime(ctx context.Context) (string, error) {
	var why []string
	for _, socket := range usualSockets {
		_, err := runtimes.Probe(ctx, socket)
		if err == nil {
			return socket, nil
		}
		why = append(why, socket+": "+err.Error())
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return "", fmt.Errorf("no CRI runtime found: %s; name its socket with --runtime-endpoint", strings.Join(why, "; "))
}
