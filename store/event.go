package store

import "github.com/plegd/plegd/timestamps"

// EventType names what happened.
type EventType string

// The event types. They are part of the JSON format.
const (
	SandboxCreated   EventType = "SandboxCreated"
	SandboxReady     EventType = "SandboxReady"
	SandboxNotReady  EventType = "SandboxNotReady"
	SandboxRemoved   EventType = "SandboxRemoved"
	SandboxChanged   EventType = "SandboxChanged"
	ContainerCreated EventType = "ContainerCreated"
	ContainerStarted EventType = "ContainerStarted"
	ContainerDied    EventType = "ContainerDied"
	ContainerRemoved EventType = "ContainerRemoved"
	ContainerChanged EventType = "ContainerChanged"
	SequenceSkipped  EventType = "SequenceSkipped"
)

// Change says what kind of change a SandboxChanged or ContainerChanged is.
type Change string

// The kinds of change.
const (
	// ChangeUnknown: the runtime reports a state that says nothing. Told at
	// most once in an incarnation.
	ChangeUnknown Change = "unknown"
	// ChangeAmended: fields became known after the event they belong to was
	// told; Event.Changed lists them.
	ChangeAmended Change = "amended"
	// ChangeRegressed: two calls in a row showed an earlier state; a new
	// incarnation starts there.
	ChangeRegressed Change = "regressed"
)

// The field names that Event.Changed may hold.
const (
	FieldState      = "state"
	FieldStartedAt  = "started_at"
	FieldFinishedAt = "finished_at"
	FieldExitCode   = "exit_code"
	FieldReason     = "reason"
	FieldIPs        = "ips"
)

// EventPod is the pod an event belongs to, as known when the event was made.
type EventPod struct {
	UID       string            `cbor:"1,keyasint,omitempty"`
	Namespace string            `cbor:"2,keyasint,omitempty"`
	Name      string            `cbor:"3,keyasint,omitempty"`
	IP        string            `cbor:"4,keyasint,omitempty"` // the first address of the pod's current sandbox
	Labels    map[string]string `cbor:"5,keyasint,omitempty"` // the labels of the sandbox
}

// EventContainer is the container an event is about; zero for a sandbox's.
type EventContainer struct {
	ID      string `cbor:"1,keyasint,omitempty"`
	Name    string `cbor:"2,keyasint,omitempty"`
	Attempt uint32 `cbor:"3,keyasint,omitempty"`
	Image   string `cbor:"4,keyasint,omitempty"`
}

// Event is one entry of the journal. Positions of one epoch grow strictly and
// never hold two contents. Journal order follows the arrival of observations;
// the events of one entity are in the order of its life.
//
// Events are immutable once published: maps and slices in them are shared.
// Volatile alone says nothing of what happened, but how the event came to its
// reader: before it could be written. Read later under the same position it
// has the same content, and Volatile is false; no event is stored with it set.
type Event struct {
	Position    timestamps.Position   `cbor:"-"` // the key it is stored under
	Type        EventType             `cbor:"1,keyasint"`
	Incarnation uint32                `cbor:"2,keyasint,omitempty"`
	Pod         EventPod              `cbor:"3,keyasint,omitzero"`
	SandboxID   string                `cbor:"4,keyasint,omitempty"`
	Container   EventContainer        `cbor:"5,keyasint,omitzero"`
	ExitKnown   bool                  `cbor:"6,keyasint,omitempty"` // of a ContainerDied or an amended entry: ExitCode is a value
	ExitCode    int32                 `cbor:"7,keyasint,omitempty"`
	Reason      string                `cbor:"8,keyasint,omitempty"`
	OccurredAt  int64                 `cbor:"9,keyasint,omitempty"` // ns by the runtime, 0 unknown
	ObservedAt  int64                 `cbor:"10,keyasint"`          // ns by the agent's wall clock
	Source      timestamps.Provenance `cbor:"11,keyasint,omitempty"`
	Inferred    bool                  `cbor:"12,keyasint,omitempty"` // not shown by any observation, but follows from one
	Volatile    bool                  `cbor:"13,keyasint,omitempty"` // delivered before it could be written; see above
	BootID      string                `cbor:"14,keyasint,omitempty"` // of the node when it was observed
	Change      Change                `cbor:"15,keyasint,omitempty"`
	Changed     []string              `cbor:"16,keyasint,omitempty"`
	State       string                `cbor:"20,keyasint,omitempty"` // of a Changed: the state it is in now, "unknown" for ChangeUnknown
	From        uint64                `cbor:"17,keyasint,omitempty"` // SequenceSkipped: first number that holds nothing
	To          uint64                `cbor:"18,keyasint,omitempty"` // SequenceSkipped: last number that holds nothing
	Running     int64                 `cbor:"19,keyasint"`           // the agent's running time, ns, by which retention counts
}

// EntityID returns the id of the container or else the sandbox that the event
// is about, "" where it is about neither.
func (e *Event) EntityID() string {
	if e.Container.ID != "" {
		return e.Container.ID
	}
	return e.SandboxID
}

// PodKey is the key of the pod that the event is of, as of its records.
func (e *Event) PodKey() string {
	if e.Pod.UID != "" {
		return PodKeyOfUID(e.Pod.UID)
	}
	return PodKeyOfSandbox(e.SandboxID)
}
