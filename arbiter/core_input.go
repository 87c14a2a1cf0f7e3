package arbiter

import (
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// Item is what one call or one event payload says of one sandbox or container.
// The conversion from CRI messages has already dropped what is malformed: text
// is valid UTF-8 and bounded, times before 1970 are zero. Items are not
// changed once handed over.
type Item struct {
	Kind     store.Kind
	ID       string
	Sandbox  string // of a container: the sandbox it names; of a sandbox: its own id
	Identity store.Identity
	State    int32 // the CRI number as received, whatever it is
	Full     bool  // from a status message; a list item says less

	CreatedAt   int64      // ns, 0 not said
	StartedAt   int64      // ns, 0 not said; containers only
	Exit        store.Exit // zero FinishedAt: not said; containers only
	IPs         []string   // sandboxes only; empty: not said
	HostNetwork bool       // sandboxes only; meaningful if Full

	Rest string // of a Full item: the status as deterministic protobuf without the fields above that have groups of their own
}

// Call is when a call was sent and answered.
type Call struct{ Sent, Answered timestamps.Stamp }

// Span returns the ticks within which the answer was true at some moment.
func (c Call) Span() timestamps.Span { return timestamps.Call(c.Sent.Tick, c.Answered.Tick) }

// Input is one thing that the core is told. The types in this file are all of
// them.
type Input interface{ input() }

// EventKind is the CRI number of an event type, as received.
type EventKind int32

// The event types of the CRI (ContainerEventType). An unset type arrives as
// EventCreated.
const (
	EventCreated EventKind = 0
	EventStarted EventKind = 1
	EventStopped EventKind = 2
	EventDeleted EventKind = 3
)

// EventSeen is one message of the event stream.
type EventSeen struct {
	At         timestamps.Stamp // receipt
	Type       EventKind
	ID         string // container_id; of a sandbox event the sandbox id
	CreatedAt  int64  // ns as received
	Sandbox    *Item  // nil when the runtime could not look it up
	Containers []Item // of the sandbox (containerd) or of the pod (CRI-O); may be short or empty at any time
}

// Scope says what a list was to cover. The zero Scope is everything.
type Scope struct {
	Sandbox string // only this sandbox and the containers that name it
	PodUID  string // only what carries this UID in the kubelet's label; proves no absence
}

// All reports whether the list was to cover everything.
func (s Scope) All() bool { return s == Scope{} }

// ListSeen is a completed list: sandboxes first, containers by a second call.
type ListSeen struct {
	Scope         Scope
	Sandboxes     []Item
	Containers    []Item
	SandboxCall   Call
	ContainerCall Call
}

// ListFailed is a list that was not completed. It says nothing about any
// entity (a failed call is no witness).
type ListFailed struct {
	Scope Scope
	At    timestamps.Stamp
	Err   string
}

// StatusSeen is the answer to a status call for one entity.
type StatusSeen struct {
	Kind     store.Kind // as asked; found out where the question was open
	ID       string
	Call     Call
	Item     *Item  // nil unless the answer was a status
	NotFound bool   // the answer was code NotFound
	Err      string // the call failed otherwise; neither Item nor NotFound
}

// StreamState is what is known of the event stream.
type StreamState uint8

// The states of the event stream.
const (
	StreamOff         StreamState = iota // never asked for
	StreamDown                           // ended or not yet open; being retried
	StreamUp                             // open, as far as can be known
	StreamUnsupported                    // the runtime has none, or ends it at once
)

// String returns the state's name as used in metrics and status.
func (s StreamState) String() string {
	switch s {
	case StreamOff:
		return "off"
	case StreamDown:
		return "down"
	case StreamUp:
		return "up"
	case StreamUnsupported:
		return "unsupported"
	default:
		return "invalid"
	}
}

// StreamChanged says that the stream was opened, ended or found unsupported.
type StreamChanged struct {
	At    timestamps.Stamp
	State StreamState
	Err   string // why it ended, "" when it didn't
}

// StreamOverflow says that events were received and thrown away, because the
// arbiter was behind. It is answered with a full list.
type StreamOverflow struct {
	At   timestamps.Stamp
	Lost int
}

// Connected says that a connection to the runtime was made, before any call
// used it. From the second on, the runtime may be one that was just restarted.
type Connected struct{ At timestamps.Stamp }

// PeriodChanged says that the base relist period is another one from now on.
type PeriodChanged struct {
	At   timestamps.Stamp
	Base int64 // ns
}

// RuntimeSeen is an answer to Version.
type RuntimeSeen struct {
	At      timestamps.Stamp
	Name    string // such as containerd or cri-o
	Version string
}

// Requested says that a reader wants a pod looked at now.
type Requested struct {
	At     timestamps.Stamp
	PodKey string
}

// TimePassed is sent at the time that the last Output asked to be woken.
type TimePassed struct{ At timestamps.Stamp }

func (*EventSeen) input()      {}
func (*ListSeen) input()       {}
func (*ListFailed) input()     {}
func (*StatusSeen) input()     {}
func (*StreamChanged) input()  {}
func (*StreamOverflow) input() {}
func (*RuntimeSeen) input()    {}
func (*Connected) input()      {}
func (*PeriodChanged) input()  {}
func (*Requested) input()      {}
func (*TimePassed) input()     {}
