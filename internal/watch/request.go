package watch

import (
	"fmt"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/selection"
)

// Bounds of Request.Keepalive, and what zero stands for.
const (
	KeepaliveMin     = time.Second
	KeepaliveMax     = time.Hour
	KeepaliveDefault = 30 * time.Second
)

// Request says where to begin and what to send. The zero Request is all events
// from now on.
type Request struct {
	// At most one of these three is set.
	Position *pleg.Position // after this one
	Time     time.Time      // from the first event on that was observed at this time or later, of those that are kept
	Snapshot bool           // all pods first, then the events after them

	Selection *selection.Selection // nil for all
	Keepalive time.Duration        // longest silence; 0 for KeepaliveDefault
	// Live sends events before they are written, without a position; of a source that
	// can (ErrNotLive). What is told already comes as for any reader.
	Live bool
	// Once ends the watch, with io.EOF, when it has caught up: after the snapshot,
	// or all events that there are. A bookmark comes before the end.
	Once bool
	// Idle, if set, is called before a wait, for more or for the next turn: a reader
	// that gathers what it passes on can pass it on now. Its error is returned by Next.
	Idle func() error
	// Turns are what the watch takes its turns of; nil reads without a rest.
	Turns *Turns
}

// check returns an error that wraps ErrRequest.
func (r *Request) check(now time.Time) error {
	set := 0
	for _, is := range []bool{r.Position != nil, !r.Time.IsZero(), r.Snapshot} {
		if is {
			set++
		}
	}
	switch {
	case set > 1:
		return fmt.Errorf("%w: a position, a time and a snapshot are three ways to begin: only one may be set", ErrRequest)
	case r.Keepalive != 0 && (r.Keepalive < KeepaliveMin || r.Keepalive > KeepaliveMax):
		return fmt.Errorf("%w: keepalive %v: must be from %v to %v", ErrRequest, r.Keepalive, KeepaliveMin, KeepaliveMax)
	case r.Time.After(now):
		return fmt.Errorf("%w: time %s: must not be in the future", ErrRequest, r.Time.Format(time.RFC3339Nano))
	}
	return nil
}
