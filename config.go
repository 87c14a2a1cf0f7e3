package pleg

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/generic"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/seam"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// Mode says which inputs a Generator uses.
type Mode string

// The modes.
const (
	// ModeHybrid uses the event stream and a relist whose period stretches
	// while the stream is healthy. Without a stream it is ModeGeneric at the
	// base period, until there is one.
	ModeHybrid Mode = "hybrid"
	// ModeGeneric relists at the base period and never subscribes.
	ModeGeneric Mode = "generic"
	// ModeEvented relists once after each subscription and otherwise relies on
	// the stream. A runtime without a stream is an error.
	ModeEvented Mode = "evented"
)

// Modes lists the modes, the default first.
var Modes = []Mode{ModeHybrid, ModeGeneric, ModeEvented}

const (
	// DefaultRelistThreshold is how much older than the period the last good
	// relist may be before the node counts as not ready: the
	// kubelet's three minutes.
	DefaultRelistThreshold = 3 * time.Minute
	// bootIDFile is where Linux says which boot this is.
	bootIDFile = "/proc/sys/kernel/random/boot_id"
)

// Config of a Generator. The zero value of every field but Endpoint has a
// meaning.
type Config struct {
	// Endpoint is the CRI socket: unix:///path or an absolute path. Required.
	Endpoint string
	// StateDir is the directory that the state is kept in, made with mode 0700
	// if it is not there. "" keeps the state in memory: then nothing survives.
	StateDir string
	// Mode is ModeHybrid by default.
	Mode Mode

	// RelistPeriod is the period while the stream can't be relied on, by
	// default 1 s; RelistPeriodMax, by default 5 min, is the longest that a
	// healthy stream earns. They count from the end of a relist.
	RelistPeriod, RelistPeriodMax time.Duration
	// RelistThreshold is how much older than the period, as it was when the
	// last good relist ended, that relist may be before Health says so. Default
	// DefaultRelistThreshold.
	RelistThreshold time.Duration
	// RPCTimeout bounds each call to the runtime. Default 10 s.
	RPCTimeout time.Duration
	// MaxInspections is how many inspections run at once. Default 8.
	MaxInspections int
	// Retention bounds the journal. Zero fields mean 24 h of running time,
	// 50,000 entries, 64 MiB.
	Retention store.Retention
	// CommitRate is the most transactions a second. Default 200.
	CommitRate float64

	// NodeName goes into the state, which is refused on another node. Default
	// the host's name.
	NodeName string
	// BootID goes into events. Default what the kernel says.
	BootID string
	// CheckState examines the closed state file before it is opened; see
	// store.BoltConfig.Check. Nil means no check but our own.
	CheckState func(path string) error

	// Logger gets one line where trouble starts and one where it ends. Nil
	// means none.
	Logger *slog.Logger
	// Registerer takes the metrics plegd_*. Nil means none.
	Registerer prometheus.Registerer
	// KubeletMetrics adds the kubelet's own metrics of pod lifecycle events,
	// kubelet_pleg_* and others, so that what was made for them works with
	// plegd. A registerer that a kubelet uses too has no room for them.
	KubeletMetrics bool
	// Clock is the wall clock, the monotonic clock and the timers. The zero
	// Clock means the machine's.
	Clock timestamps.Clock

	hooks seam.Hooks
}

// Tests outside this package reach the hooks by seam.
func init() {
	seam.Set = func(cfg any, h seam.Hooks) { cfg.(*Config).hooks = h }
}

// random returns the source of jitter of a part, nil for the part's own.
func (c *Config) random(part string) func() float64 {
	if c.hooks.Random == nil {
		return nil
	}
	return c.hooks.Random(part)
}

// ErrConfig is wrapped by ConfigError.
var ErrConfig = errors.New("invalid configuration")

// defaulted fills in what is not set.
func (c Config) defaulted() Config {
	if c.Mode == "" {
		c.Mode = ModeHybrid
	}
	if c.RelistPeriod == 0 {
		c.RelistPeriod = generic.DefaultBase
	}
	if c.RelistPeriodMax == 0 {
		c.RelistPeriodMax = max(generic.DefaultMax, c.RelistPeriod)
	}
	if c.RelistThreshold == 0 {
		c.RelistThreshold = DefaultRelistThreshold
	}
	if c.RPCTimeout == 0 {
		c.RPCTimeout = generic.DefaultRPCTimeout
	}
	if c.MaxInspections == 0 {
		c.MaxInspections = generic.DefaultInspections
	}
	if c.NodeName == "" {
		c.NodeName, _ = os.Hostname() // "" is a name too: then the file is not bound to a node
	}
	if c.BootID == "" {
		id, _ := os.ReadFile(bootIDFile) // not on every system; events then have none
		c.BootID = strings.TrimSpace(string(id))
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock.Wall == nil && c.Clock.Mono == nil && c.Clock.NewTimer == nil {
		c.Clock = sysclock.New()
	}
	return c
}

// ConfigError says which field of a Config is wrong, and why. It wraps
// ErrConfig.
type ConfigError struct {
	Field  string // such as RelistPeriod
	Value  string
	Reason string // such as "must be at least 10ms"
}

// Error names the field, the value and what is allowed.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("%v: %s %s: %s", ErrConfig, e.Field, e.Value, e.Reason)
}

// Unwrap returns ErrConfig.
func (e *ConfigError) Unwrap() error { return ErrConfig }

// Validate says what New would refuse. The error is a ConfigError.
func (c Config) Validate() error { return c.defaulted().validate() }

// validate refuses contradictions.
func (c Config) validate() error {
	bad := func(field string, value any, format string, args ...any) error {
		return &ConfigError{Field: field, Value: fmt.Sprint(value), Reason: fmt.Sprintf(format, args...)}
	}
	if _, err := cri.ParseEndpoint(c.Endpoint); err != nil {
		return bad("Endpoint", fmt.Sprintf("%.200q", c.Endpoint), "%v", err)
	}
	switch {
	case c.Mode != ModeHybrid && c.Mode != ModeGeneric && c.Mode != ModeEvented:
		return bad("Mode", fmt.Sprintf("%.40q", string(c.Mode)), "must be hybrid, generic or evented")
	case c.RelistPeriod < minPeriod:
		return bad("RelistPeriod", c.RelistPeriod, "must be at least %v", minPeriod)
	case c.RelistPeriodMax < c.RelistPeriod:
		return bad("RelistPeriodMax", c.RelistPeriodMax, "must not be below the relist period %v", c.RelistPeriod)
	case c.RelistThreshold < 0:
		return bad("RelistThreshold", c.RelistThreshold, "must be positive")
	case c.RPCTimeout < minTimeout:
		return bad("RPCTimeout", c.RPCTimeout, "must be at least %v", minTimeout)
	case c.MaxInspections < 1 || c.MaxInspections > maxInspections:
		return bad("MaxInspections", c.MaxInspections, "must be 1 to %d", maxInspections)
	case !(c.CommitRate >= 0): // NaN too
		return bad("CommitRate", c.CommitRate, "must not be negative")
	case c.Retention.Age < 0 || c.Retention.Entries < 0 || c.Retention.Bytes < 0:
		return bad("Retention", fmt.Sprintf("%+v", c.Retention), "must not be negative")
	case c.Retention.Bytes > store.DefaultMaxSize/2:
		return bad("Retention.Bytes", c.Retention.Bytes, "must be at most %d, half of what the state file may grow to", store.DefaultMaxSize/2)
	case c.Clock.Wall == nil || c.Clock.Mono == nil || c.Clock.NewTimer == nil:
		return bad("Clock", "with parts missing", "all three parts or none must be given")
	}
	return nil
}

const (
	// minPeriod: below this a relist is a load of its own on the runtime.
	minPeriod = 10 * time.Millisecond
	// minTimeout: below this an idle runtime may fail too.
	minTimeout = 10 * time.Millisecond
	// maxInspections: more calls in flight than this harm the runtime.
	maxInspections = 256
)
