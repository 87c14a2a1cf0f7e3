package compare

import (
	"time"

	"github.com/plegd/plegd/store"
)

// ReportFormat is the version of the JSON form of a Report. Fields may be
// added under the same number.
const ReportFormat = 1

// Report is the result of a comparison. Times are nanoseconds of the wall
// clock, durations nanoseconds.
type Report struct {
	Format      int                     `json:"format"`
	From        int64                   `json:"from"`          // all modes were ready
	To          int64                   `json:"to"`            // the end of the measurement
	Cut         string                  `json:"cut,omitempty"` // why it ended before it was to, "" where it did not
	Load        string                  `json:"load"`          // in words
	Runtime     Runtime                 `json:"runtime"`
	Late        time.Duration           `json:"late"`        // what is told later than this is late
	Counts      map[store.EventType]int `json:"counts"`      // transitions by type
	Basis       map[Basis]int           `json:"basis"`       // transitions by what their time is known by
	Transitions []Transition            `json:"transitions"` // by time
	Unlisted    int                     `json:"unlisted"`    // transitions beyond MaxTransitions, which are counted but not listed
	Modes       []ModeReport            `json:"modes"`
	Winner      string                  `json:"winner"`  // see Winner
	Verdict     []string                `json:"verdict"` // sentences
	Broken      []string                `json:"broken"`  // thresholds
	Notes       []string                `json:"notes"`
	OwnCPU      time.Duration           `json:"own_cpu"` // of the comparing process itself
}

// Runtime is who was compared on.
type Runtime struct {
	Endpoint string        `json:"endpoint"`
	Name     string        `json:"name"`
	Version  string        `json:"version"`
	PID      int           `json:"pid,omitempty"`
	CPU      time.Duration `json:"cpu"`                   // of its process, for all modes and its own work
	Unknown  string        `json:"cpu_unknown,omitempty"` // why CPU is not known, "" where it is
	Series   []CPUPoint    `json:"series,omitempty"`
}

// CPUPoint is what share of a processor was used in the time up to At.
type CPUPoint struct {
	At    int64   `json:"at"`
	Share float64 `json:"share"`
}

// Basis is by what the time of a transition is known, the best first.
type Basis string

// The bases.
const (
	BasisHistory Basis = "history" // the history of a simulated runtime
	BasisRuntime Basis = "runtime" // created_at, started_at or finished_at of the runtime
	BasisEvent   Basis = "event"   // created_at of the event that told it, stamped just after it
	BasisSeen    Basis = "seen"    // no time is known: the first moment at which any mode was told
)

// MaxTransitions is how many transitions a report lists. Those that some mode
// did not tell well come before all others.
const MaxTransitions = 20_000

// Transition is one thing that happened.
type Transition struct {
	Type    store.EventType `json:"type"`
	ID      string          `json:"id"`
	Sandbox string          `json:"sandbox"`
	Pod     Pod             `json:"pod"`
	Name    string          `json:"name,omitempty"` // of the container
	Attempt uint32          `json:"attempt,omitempty"`
	At      int64           `json:"at"`
	Basis   Basis           `json:"basis"`
	Exit    *int32          `json:"exit_code,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	Told    []int64         `json:"told"` // when each mode told it, in their order; 0: not
}

// ModeReport is the result of one mode.
type ModeReport struct {
	Mode
	Stream  string `json:"stream"`            // state of its stream when it was ready
	NotRun  string `json:"not_run,omitempty"` // why it was not judged at all
	EndedAt int64  `json:"ended_at,omitempty"`
	Ended   string `json:"ended,omitempty"` // why it ended early; it is judged up to then

	Judged     int                         `json:"judged"` // transitions while it ran
	Told       int                         `json:"told"`
	Missed     int                         `json:"missed"`
	Late       int                         `json:"late"`
	Wrong      int                         `json:"wrong"`
	Duplicated int                         `json:"duplicated"`
	Reordered  int                         `json:"reordered"`
	Corrected  int                         `json:"corrected"`   // told wrong, or without a value, and then amended
	StateWrong time.Duration               `json:"state_wrong"` // sum over all entities
	All        Latency                     `json:"all"`
	Latency    map[store.EventType]Latency `json:"latency"`
	Findings   []Finding                   `json:"findings"`
	Unlisted   int                         `json:"unlisted"` // findings beyond MaxFindings
	Cost       Cost                        `json:"cost"`
	Series     []Point                     `json:"series"`
	Notes      []Note                      `json:"notes,omitempty"`
}

// Latency is how long after a transition it was told: order statistics by the
// nearest rank. What was missed has none.
type Latency struct {
	N   int           `json:"n"`
	P50 time.Duration `json:"p50"`
	P90 time.Duration `json:"p90"`
	P99 time.Duration `json:"p99"`
	Max time.Duration `json:"max"`

	Spread []time.Duration `json:"spread,omitempty"` // in even steps of share, the least first; for charts, since not all transitions are listed
	Judged int             `json:"judged"`           // how many there were to be told
}

// Fault is what was not told well.
type Fault string

// The faults.
const (
	Missed     Fault = "missed"     // never told, not at the closing relist either
	Late       Fault = "late"       // told later than Report.Late, or only at the closing relist
	Wrong      Fault = "wrong"      // the code, reason, pod or time told last is not the runtime's, or it did not happen
	Duplicated Fault = "duplicated" // told again, with nothing in between
	Reordered  Fault = "reordered"  // told after what came later for the same entity
)

// MaxFindings is how many findings of a mode a report lists.
const MaxFindings = 1000

// Finding is one thing that a mode did not tell well.
type Finding struct {
	Fault      Fault           `json:"fault"`
	Type       store.EventType `json:"type"`
	ID         string          `json:"id"`
	Transition int             `json:"transition"` // its number in Report.Transitions, -1 where it is not listed
	At         int64           `json:"at"`         // the transition's time, or when it was told
	What       string          `json:"what"`       // in words
	Around     []Observation   `json:"around,omitempty"`
}

// Observation is what the runtime said to one mode.
type Observation struct {
	Mode string `json:"mode"`
	Raw
}

// Cost is what a mode used between From and To, as its samples have it: to the
// nearest second at both ends.
type Cost struct {
	Seconds float64          `json:"seconds"` // between the samples
	Calls   map[string]Calls `json:"calls"`
	Total   Calls            `json:"total"`
	CPU     time.Duration    `json:"cpu"`
	Allocs  uint64           `json:"allocs"`
	Alloced uint64           `json:"alloced"` // bytes
	RSS     int64            `json:"rss"`     // the most, bytes
	Commits uint64           `json:"commits"`
	Fsyncs  uint64           `json:"fsyncs"`
}

// Point is what a mode used in the time up to At, a second.
type Point struct {
	At    int64   `json:"at"`
	CPU   float64 `json:"cpu"`   // share of a processor
	Calls float64 `json:"calls"` // a second
	Bytes float64 `json:"bytes"` // a second, both ways
}
