package simruntime

import (
	"fmt"
	"time"

	"google.golang.org/grpc"
)

// Defaults of Config.
const (
	// DefaultReplayWindow is how long containerd 2.x keeps an event for which
	// nobody listens (its event queue gives each event five minutes).
	DefaultReplayWindow = 5 * time.Minute

	// DefaultSubscriberBuffer is the number of events that wait for one
	// subscriber. containerd buffers 100 and then blocks; a test that is not
	// about blocking wants room, so the default is the kubelet's own channel
	// size.
	DefaultSubscriberBuffer = 1000

	// DefaultStreamBatch is the number of items in one message of a streaming
	// list, containerd's own. Readers may rely on nothing but "one or more"
	// (KEP-5825).
	DefaultStreamBatch = 5000

	// DefaultKeep bounds the call log and the history, so that a simulation
	// that runs for days doesn't grow for days.
	DefaultKeep = 100_000

	// maxMessage is the largest message containerd sends or takes. A list that
	// doesn't fit is answered with ResourceExhausted (kubernetes#63858).
	maxMessage = 16 << 20

	// maxBatchBytes ends a message of a streaming list early, so that it fits
	// into maxMessage with its framing.
	maxBatchBytes = 15 << 20
)

// Config says what kind of runtime to simulate. The zero value is a
// containerd 2.4 with default bounds.
type Config struct {
	// Seed feeds container ids and the probabilities of rules. The same seed
	// and the same sequence of calls give the same ids and the same faults.
	Seed uint64

	// Profile is the runtime that is imitated; the zero value is Containerd24.
	Profile Profile

	// Wall is the runtime's own wall clock: every created, started and
	// finished time and every event's created_at come from it. Default
	// time.Now. It may step in either direction. Waiting and recording use the
	// clock of package time, so a Runtime works inside testing/synctest.
	Wall func() time.Time

	// DualStack gives every pod an IPv6 address beside its IPv4 one.
	DualStack bool

	// SubscriberBuffer is the number of events that may wait for one
	// subscriber, or in the one queue of profiles that have just one. Default
	// 1000.
	SubscriberBuffer int

	// StallProducers makes a full subscriber block whoever produces the next
	// event, as containerd 2.x does: create, start and remove hang until the
	// subscriber reads, other subscribers get nothing and new ones can't join.
	// Without it the newest event is dropped for that subscriber and counted.
	// It concerns QueueBroadcast only, as does ReplayWindow.
	StallProducers bool

	// ReplayWindow is how long an event waits for a subscriber when there is
	// none. Default 5 minutes; negative keeps nothing.
	ReplayWindow time.Duration

	// StreamBatch is the number of items per message of a streaming list.
	// Default 5000; a message also ends before it grows beyond 15 MiB.
	StreamBatch int

	// Keep bounds the call log and the history, each; the oldest entries go
	// first. Counters stay exact. Default 100,000.
	Keep int

	// KeepaliveMinTime is how far apart a client's pings must be, or else it is
	// cut off at the third that comes too early; while it has no call in
	// flight, they must be two hours apart. Default 5 minutes.
	KeepaliveMinTime time.Duration

	// ServerOptions are added to those of the gRPC server (a keepalive
	// policy, a codec).
	ServerOptions []grpc.ServerOption
}

// withDefaults fills in what was left zero and refuses what makes no sense.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.SubscriberBuffer < 0:
		return c, fmt.Errorf("config: subscriber buffer %d is negative", c.SubscriberBuffer)
	case c.StreamBatch < 0:
		return c, fmt.Errorf("config: stream batch %d is negative", c.StreamBatch)
	case c.KeepaliveMinTime < 0:
		return c, fmt.Errorf("config: keepalive minimum %v is negative", c.KeepaliveMinTime)
	case c.Keep < 0:
		return c, fmt.Errorf("config: keep %d is negative", c.Keep)
	}
	if c.Profile == (Profile{}) {
		c.Profile = Containerd24
	}
	if err := c.Profile.validate(); err != nil {
		return c, fmt.Errorf("config: %w", err)
	}
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.SubscriberBuffer == 0 {
		c.SubscriberBuffer = DefaultSubscriberBuffer
	}
	if c.ReplayWindow == 0 {
		c.ReplayWindow = DefaultReplayWindow
	}
	if c.StreamBatch == 0 {
		c.StreamBatch = DefaultStreamBatch
	}
	if c.KeepaliveMinTime == 0 {
		c.KeepaliveMinTime = DefaultKeepaliveMinTime
	}
	if c.Keep == 0 {
		c.Keep = DefaultKeep
	}
	return c, nil
}
