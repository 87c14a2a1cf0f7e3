package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/plegd/plegd/internal/runtimes"
)

// target is a runtime that answered; the zero target is none.
type target struct {
	name   string // the runtime's own, fit for a folder's name
	socket string
}

// choose finds the runtime to run on. An endpoint that the user named is taken or refused, never
// passed over. Of the usual sockets the first that answers is taken, so that a file left behind by a
// runtime that is gone doesn't win; what doesn't answer is told.
func choose(ctx context.Context, endpoint string, usual []string, say func(string, ...any)) (target, error) {
	if endpoint != "" {
		socket := strings.TrimPrefix(endpoint, "unix://")
		if !filepath.IsAbs(socket) {
			return target{}, fmt.Errorf("CONTAINER_RUNTIME_ENDPOINT %q is not unix:// and an absolute path", endpoint)
		}
		v, err := runtimes.Probe(ctx, socket)
		if err != nil {
			return target{}, fmt.Errorf("CONTAINER_RUNTIME_ENDPOINT %s can't be used: %w (unset it to look elsewhere)", endpoint, err)
		}
		return target{name: folderName(v.Name), socket: socket}, nil
	}
	for _, socket := range usual {
		v, err := runtimes.Probe(ctx, socket)
		switch {
		case err == nil:
			return target{name: folderName(v.Name), socket: socket}, nil
		case errors.Is(err, runtimes.ErrAbsent):
		default:
			say("passing over %s: %v", socket, err)
		}
	}
	return target{}, ctx.Err()
}

// folderName makes a name that a runtime gave itself fit for a path.
func folderName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return -1
	}, strings.ToLower(name))
	if name == "" || name == "simulated" {
		return "runtime"
	}
	return name
}
