package evented

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/timestamps"
)

var (
	// ErrUnsupported is wrapped by the error of [Watcher.Run] when the stream
	// is required and the runtime has none.
	ErrUnsupported = errors.New("event stream is not supported by the runtime")
	// ErrRefused is wrapped by the error of [Config.Admit] that says that the
	// stream must not be opened.
	ErrRefused = errors.New("event stream is not used")
	// ErrMalformed is wrapped by the error of a [Stream]'s Recv for a message
	// that could not be decoded. The stream goes on after it.
	ErrMalformed = cri.ErrMalformed
	// ErrRan is returned by a second [Watcher.Run].
	ErrRan = errors.New("watcher was run before")
)

const (
	// DefaultGrace is how long a stream has to last to count as up. Runtimes
	// refuse within a few ms; an idle machine waits this long for trust.
	DefaultGrace = 200 * time.Millisecond
	// DefaultProbeInterval is how often an unsupported stream is tried again.
	DefaultProbeInterval = 5 * time.Minute
	// DefaultBackoffBase is the first delay before the stream is opened again.
	DefaultBackoffBase = 100 * time.Millisecond
	// DefaultBackoffMax is the longest: what a recovered runtime waits for a
	// client that doesn't call Reprobe.
	DefaultBackoffMax = 10 * time.Second

	// endAtOnce: a stream without a message that ends without an error within
	// this time was never wanted. A busy CRI-O may need longer than the grace.
	endAtOnce = 2 * time.Second
	// stableAfter is how long a stream has to be up to count as progress. With
	// messages a fifth is enough.
	stableAfter = 5 * time.Second
	// overflowGap is the least time between two StreamOverflow.
	overflowGap = time.Second
)

// Stream is an open event stream.
type Stream interface {
	// Recv waits for the next message. io.EOF is the end without an error; an
	// error that wraps [ErrMalformed] is no end. It returns soon after the
	// context with which the stream was opened has ended.
	Recv() (*runtimeapi.ContainerEventResponse, error)
}

// Config says what a [Watcher] works on and how.
type Config struct {
	// Open opens the stream, which lives until ctx ends. Errors carry gRPC
	// codes. Required.
	Open  func(ctx context.Context) (Stream, error)
	Sink  arbiter.Sink     // required; takes what was received
	Calls *arbiter.Calls   // required; stamps receipts
	Clock timestamps.Clock // required; all three parts

	// Required makes Run return an error that wraps [ErrUnsupported] instead
	// of trying an unsupported stream again.
	Required bool
	// Admit is asked before each try. An error keeps the stream from being
	// opened. One that wraps [ErrRefused] says that it must not be although the
	// runtime has it; the stream then counts as unsupported. Any other says that
	// this could not be found out; it then counts as down and is tried again
	// soon. Nil admits always.
	Admit func(ctx context.Context) error
	// Grace is how long a stream has to last to count as up. Zero means the
	// default.
	Grace time.Duration
	// ProbeInterval is how often an unsupported stream is tried again. Zero
	// means the default.
	ProbeInterval time.Duration
	// BackoffBase and BackoffMax bound the delay before a stream that ended is
	// opened again. Zero means the default.
	BackoffBase, BackoffMax time.Duration
	// Random returns a number from 0 to 1 for jitter, to one caller at a time.
	// Nil means math/rand/v2.
	Random func() float64
}

// validate fills in defaults and refuses contradictions.
func (c *Config) validate() error {
	for _, d := range []struct {
		what  string
		value *time.Duration
		def   time.Duration
	}{
		{"stream grace", &c.Grace, DefaultGrace},
		{"stream probe interval", &c.ProbeInterval, DefaultProbeInterval},
		{"least reconnection delay", &c.BackoffBase, DefaultBackoffBase},
		{"longest reconnection delay", &c.BackoffMax, max(DefaultBackoffMax, c.BackoffBase)},
	} {
		if *d.value < 0 {
			return fmt.Errorf("%s %v: must not be negative", d.what, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	switch {
	case c.Open == nil || c.Sink == nil || c.Calls == nil:
		return errors.New("watcher: open, sink and calls are required")
	case c.Clock.Wall == nil || c.Clock.Mono == nil || c.Clock.NewTimer == nil:
		return errors.New("watcher: clock is not complete")
	case c.BackoffMax < c.BackoffBase:
		return fmt.Errorf("longest reconnection delay %v: must not be below the least, %v", c.BackoffMax, c.BackoffBase)
	}
	return nil
}
