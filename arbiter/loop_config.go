package arbiter

import (
	"log/slog"
	"time"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

const (
	// DefaultCommitRate is commits per second. A synced commit costs about a
	// millisecond of an SSD; at 200 a second a busy node's disk has most of
	// its time left, and a burst still waits no more than 5 ms.
	DefaultCommitRate = 200
	// commitBurst commits go out at once after a quiet time.
	commitBurst = 20
	// DefaultQueue is how many events may wait for the loop, DefaultQueueBytes
	// how large they may be together. A full queue costs one relist.
	DefaultQueue      = 8192
	DefaultQueueBytes = 64 << 20
	// heartbeat: the loop turns at least this often, so that silence of its
	// own can be told from idleness (Health.Progress).
	heartbeat = 5 * time.Second
)

// Config of a Loop.
type Config struct {
	Store      store.Store      // required; the loop owns Load and Commit
	Clock      timestamps.Clock // required
	Log        *slog.Logger     // nil: discards
	Observer   Observer         // nil: none
	Limits     Limits           // of the core; zero fields mean DefaultLimits
	CommitRate float64          // commits per second; 0: DefaultCommitRate
	Queue      int              // events that may wait; 0: DefaultQueue
	QueueBytes int64            // bytes of events that may wait; 0: DefaultQueueBytes
	BootID     string           // boot id of the node, put into events; "" unknown
	Runtime    store.RuntimeID  // what the state is to describe; Name is learnt from Version

	// Unwritten is how many events are held to be written later while the store
	// fails, UnwrittenBytes how much memory they may hold. With the next one
	// history is lost, so a new epoch begins. 0: what the journal keeps by
	// default; who keeps more or less there gives that.
	Unwritten      int
	UnwrittenBytes int64
}

func (c Config) defaulted() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	if c.CommitRate == 0 {
		c.CommitRate = DefaultCommitRate
	}
	if c.Queue == 0 {
		c.Queue = DefaultQueue
	}
	if c.QueueBytes == 0 {
		c.QueueBytes = DefaultQueueBytes
	}
	if c.Unwritten == 0 {
		c.Unwritten = store.DefaultEntries
	}
	if c.UnwrittenBytes == 0 {
		c.UnwrittenBytes = store.DefaultBytes
	}
	return c
}

// Observer is told what the loop does, for metrics. Its methods are called by
// the loop's goroutine and must not block.
type Observer interface {
	// Stepped is called after each step.
	Stepped(in Input, out *Output)
	// Committed is called after each try to commit.
	Committed(took time.Duration, events int, err error)
	// Published is called for each event when readers can see it. latency is
	// from when it occurred by the runtime, 0 when that is unknown.
	Published(ev *store.Event, latency time.Duration)
}

type nobody struct{}

func (nobody) Stepped(Input, *Output)                {}
func (nobody) Committed(time.Duration, int, error)   {}
func (nobody) Published(*store.Event, time.Duration) {}

// Hooks is where the loop sends what the core asks for. Each is called by the
// loop's goroutine and must not block; nil ones are left out.
type Hooks struct {
	Do       func([]Action)    // questions to the runtime
	Relisted func(Relist)      // the verdict on a full list
	Shrink   func()            // back to the base period
	Stream   func(StreamState) // the stream's state, at each change
	Renewed  func()            // another runtime or version answers than before
	Runtime  func()            // the runtime has said its name, and is the one that the state describes
}
