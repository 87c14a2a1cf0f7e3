// Package seam lets the tests of this module, and its comparison of modes, stand
// between the parts of a generator from outside package pleg, without a word of it
// in the public API.
package seam

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/stats"

	"github.com/plegd/plegd/store"
)

// Hooks are the places at which one may stand. Nil ones change nothing.
type Hooks struct {
	// Dialer replaces dialing the socket.
	Dialer func(ctx context.Context, path string) (net.Conn, error)
	// Store wraps the store.
	Store func(store.Store) store.Store
	// Tombstones and TombstoneAge, ns, replace what the core keeps of what was
	// removed (see arbiter.Limits).
	Tombstones   int
	TombstoneAge int64
	// Stats sees each call to the runtime and all that is received.
	Stats stats.Handler
	// Redial is how soon a lost connection is tried again.
	Redial *backoff.Config
	// StreamBackoff is the longest delay before the event stream is opened again.
	StreamBackoff time.Duration
	// Random returns the source of jitter of one part, numbers from 0 to 1 for
	// one caller at a time.
	Random func(part string) func() float64
}

// Set puts hooks into a configuration, which has to be a *pleg.Config. Package
// pleg provides it when it is initialised.
var Set func(cfg any, h Hooks)
