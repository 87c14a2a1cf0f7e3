package generic

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/timestamps"
)

const (
	// DefaultBase is the relist period while the stream can't be relied on,
	// the kubelet's.
	DefaultBase = time.Second
	// DefaultMax is the period that a trusted stream earns. It bounds for how
	// long a change stays unseen that the stream silently lost.
	DefaultMax = 5 * time.Minute
	// DefaultInspections is how many inspections run at once. Runtimes answer a
	// status in a few ms, so this is over a thousand a second.
	DefaultInspections = 8
	// DefaultRPCTimeout bounds one call.
	DefaultRPCTimeout = cri.DefaultRPCTimeout
	// DefaultPodGap is how close inspections of one pod may follow each other:
	// a pod that starts causes some five events within 50 ms.
	DefaultPodGap = 100 * time.Millisecond

	// DefaultCallRate is how many calls about single pods, sandboxes and
	// containers go out in a second, DefaultCallBurst how many may go at once
	// after a quiet time. That is three times what the kubelet's own relists make
	// at 50 changes a second on 110 pods (145, measured with 1.36), and spreads
	// the details of 20,000 containers at the agent's first start over 40 s.
	DefaultCallRate  = 500
	DefaultCallBurst = 1000

	// maxPatience is how long an inspection may keep its slot from others: one
	// base period, which is by how much a hung pod may delay them.
	maxPatience = time.Second
	// holdFactor: how many call timeouts pass before a question that timed out
	// is put again. The call may go on in the runtime meanwhile; those that
	// came back at all did so within this time.
	holdFactor = 3
	// leastBurst: a look makes two calls.
	leastBurst = 2
	// listGap is the least time from the end of a full list to the start of one
	// that was asked for. Whoever asks for lists without end gets ten a second.
	listGap = 100 * time.Millisecond
)

// Runtime is what the Relister asks of a CRI runtime. A call must return soon
// after its context's deadline, whatever the runtime does. Errors carry gRPC
// codes; code NotFound of a status call says that the entity doesn't exist. A
// list is complete or an error. Answers are not changed after they were
// returned. All methods are called by several goroutines at once.
type Runtime interface {
	// ListPodSandbox lists the sandboxes that match, all for nil.
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	// ListContainers lists the containers that match, all for nil.
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	// PodSandboxStatus returns the status of one sandbox.
	PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
	// ContainerStatus returns the status of one container.
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
}

// Observer is told of what was done, for metrics. Its methods are called by
// several goroutines at once and must not block.
type Observer interface {
	// Relisted says that a full list has ended: how long it took, how long
	// after the start of the one before it started (0 for the first), and the
	// error of one that failed.
	Relisted(took, interval time.Duration, err error)
	// Inspected says that an action other than ActList has ended. An entity
	// that doesn't exist comes with the error that said so.
	Inspected(kind arbiter.ActionKind, took time.Duration, err error)
}

// Config says what a [Relister] works on and how.
type Config struct {
	Runtime Runtime          // required
	Sink    arbiter.Sink     // required; takes what was found
	Calls   *arbiter.Calls   // required; stamps calls
	Clock   timestamps.Clock // required; all three parts

	// Base is the period while the stream can't be relied on, Max the longest.
	// They count from the end of a relist. Zero means the default.
	Base, Max time.Duration
	// NoPeriod switches periodic relists off: only what is asked for is done.
	NoPeriod bool
	// MaxInspections is how many inspections run at once. Those that hang
	// stop counting after a second at most, up to 16 times as many, so that at
	// most 17 times this number are in flight when all of them hang. Zero means
	// the default.
	MaxInspections int
	// RPCTimeout bounds each call. Zero means the default.
	RPCTimeout time.Duration
	// PodGap is the least time between rounds of calls for one pod. Zero means
	// the default.
	PodGap time.Duration
	// CallRate is how many calls a second inspections and looks make together,
	// CallBurst how many of them may go at once. Full lists don't count: they
	// have their period. Zero means the default.
	CallRate  float64
	CallBurst int
	// Random returns a number from 0 to 1 for jitter, for one caller at a time.
	// Nil means math/rand/v2.
	Random func() float64
	// Observer may be nil.
	Observer Observer
}

// validate fills in defaults and refuses contradictions.
func (c *Config) validate() error {
	if c.Base == 0 {
		c.Base = DefaultBase
	}
	if c.Max == 0 {
		c.Max = max(DefaultMax, c.Base)
	}
	if c.MaxInspections == 0 {
		c.MaxInspections = DefaultInspections
	}
	if c.RPCTimeout == 0 {
		c.RPCTimeout = DefaultRPCTimeout
	}
	if c.PodGap == 0 {
		c.PodGap = DefaultPodGap
	}
	if c.CallRate == 0 {
		c.CallRate = DefaultCallRate
	}
	if c.CallBurst == 0 {
		c.CallBurst = DefaultCallBurst
	}
	if c.Random == nil {
		c.Random = rand.Float64
	}
	switch {
	case c.Runtime == nil || c.Sink == nil || c.Calls == nil:
		return fmt.Errorf("relister: runtime, sink and calls are required")
	case c.Clock.Wall == nil || c.Clock.Mono == nil || c.Clock.NewTimer == nil:
		return fmt.Errorf("relister: clock is not complete")
	case c.MaxInspections < 0:
		return fmt.Errorf("inspections at once %d: must not be negative", c.MaxInspections)
	case c.RPCTimeout < 0:
		return fmt.Errorf("RPC timeout %v: must not be negative", c.RPCTimeout)
	case !(c.CallRate > 0):
		return fmt.Errorf("calls per second %v: must be positive", c.CallRate)
	case c.CallBurst < leastBurst:
		return fmt.Errorf("calls at once %d: must be at least %d, the calls of one look", c.CallBurst, leastBurst)
	case c.PodGap < 0:
		return fmt.Errorf("gap between calls for a pod %v: must not be negative", c.PodGap)
	}
	return checkPeriods(c.Base, c.Max)
}

// checkPeriods refuses periods that contradict each other.
func checkPeriods(base, longest time.Duration) error {
	switch {
	case base <= 0:
		return fmt.Errorf("relist period %v: must be positive", base)
	case longest < base:
		return fmt.Errorf("longest relist period %v: must not be below the base period %v", longest, base)
	}
	return nil
}

// patience is how long an inspection may keep its slot.
func (c *Config) patience() time.Duration { return min(maxPatience, c.RPCTimeout/2) }
