package evented

import (
	"log/slog"
	"time"

	"github.com/plegd/plegd/arbiter"
)

// trouble keeps the log down to one line when trouble starts or changes its
// kind, and one when it is over.
type trouble struct {
	log      *slog.Logger
	required bool                // Config.Required
	state    arbiter.StreamState // the kind that was logged; StreamOff for none
	since    time.Duration
	times    int  // how often the stream was lost in it
	seen     bool // the stream has been up before
}

// starts says that the stream is not up.
func (t *trouble) starts(state arbiter.StreamState, err error, now time.Duration) {
	t.times++
	if t.state == state {
		return
	}
	if t.state == arbiter.StreamOff {
		t.since, t.times = now, 1
	}
	t.state = state
	if state == arbiter.StreamUnsupported {
		if t.required {
			return // Run returns the reason, and there are no relists to fall back on
		}
		t.log.Warn("no event stream, relists have to do", "reason", err)
		return
	}
	t.log.Warn("event stream is down, trying again for ever", "reason", err)
}

// opened says that the stream came up, for the first time perhaps.
func (t *trouble) opened() {
	if !t.seen && t.state == arbiter.StreamOff {
		t.log.Info("event stream is up")
	}
	t.seen = true
}

// ends says that the stream has been up for long enough.
func (t *trouble) ends(now time.Duration) {
	if t.state == arbiter.StreamOff {
		return
	}
	t.log.Info("event stream is up again", "after", now-t.since, "lost_times", t.times)
	t.state = arbiter.StreamOff
}
