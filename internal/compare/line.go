package compare

import (
	"github.com/plegd/plegd/store"
)

// Line is one line of JSON of a mode: exactly one of the fields is set.
type Line struct {
	Ready  *Ready  `json:"ready,omitempty"`
	Event  *Event  `json:"event,omitempty"`
	Raw    *Raw    `json:"raw,omitempty"`
	Sample *Sample `json:"sample,omitempty"`
	Note   *Note   `json:"note,omitempty"`
	End    *End    `json:"end,omitempty"`
}

// Ready says that the mode has listed and inspected everything once, as far as it
// could, and that its stream is open, if it uses one and there is one.
type Ready struct {
	At      int64  `json:"at"`
	Runtime string `json:"runtime"` // name
	Version string `json:"version"` // of the runtime
	Stream  string `json:"stream"`  // state of the event stream: off, up, down, unsupported
}

// Event is one event of the journal as the reader of the mode got it, before
// its commit where it could.
type Event struct {
	At          int64           `json:"at"` // in the reader's hand
	Type        store.EventType `json:"type"`
	Change      store.Change    `json:"change,omitempty"`
	Changed     []string        `json:"changed,omitempty"`
	State       string          `json:"state,omitempty"` // of a Changed event
	Incarnation uint32          `json:"incarnation,omitempty"`
	ID          string          `json:"id"`      // of the container or else of the sandbox
	Sandbox     string          `json:"sandbox"` // its sandbox, or itself
	Pod         Pod             `json:"pod"`
	Name        string          `json:"name,omitempty"` // of the container
	Attempt     uint32          `json:"attempt,omitempty"`
	OccurredAt  int64           `json:"occurred_at,omitempty"` // 0 unknown
	ExitKnown   bool            `json:"exit_known,omitempty"`
	ExitCode    int32           `json:"exit_code,omitempty"`
	Reason      string          `json:"reason,omitempty"`
	Source      string          `json:"source,omitempty"`
	Inferred    bool            `json:"inferred,omitempty"`
}

// Pod names a pod.
type Pod struct {
	UID       string `json:"uid,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// EventOf makes the line of an event that a reader got at a time.
func EventOf(ev *store.Event, at int64) Event {
	e := Event{
		At: at, Type: ev.Type, Change: ev.Change, Changed: ev.Changed, State: ev.State, Incarnation: ev.Incarnation,
		ID: ev.EntityID(), Sandbox: ev.SandboxID, Pod: Pod{ev.Pod.UID, ev.Pod.Namespace, ev.Pod.Name},
		Name: ev.Container.Name, Attempt: ev.Container.Attempt, OccurredAt: ev.OccurredAt,
		ExitKnown: ev.ExitKnown, ExitCode: ev.ExitCode, Reason: ev.Reason, Inferred: ev.Inferred,
	}
	if ev.Source != 0 {
		e.Source = ev.Source.String()
	}
	return e
}

// Via is how a mode was told something.
type Via string

// The ways.
const (
	ViaEvent  Via = "event"  // a message of the event stream
	ViaList   Via = "list"   // an item of a list, or its absence from a full one
	ViaStatus Via = "status" // the answer to a status call
	ViaCall   Via = "call"   // a call that failed, or the end of the stream
)

// Raw is one thing that the runtime said to a mode. What a list or a status
// says is a line only when it is something else than the same way has said of the
// entity before.
type Raw struct {
	At  int64  `json:"at"` // all of the answer was there, or the event
	Via Via    `json:"via"`
	ID  string `json:"id,omitempty"` // of the entity; of a call that failed: what it asked about, "" for all

	Kind    string `json:"kind,omitempty"` // sandbox or container, "" where the message doesn't tell
	Sandbox string `json:"sandbox,omitempty"`
	Pod     Pod    `json:"pod,omitzero"`
	Name    string `json:"name,omitempty"` // of the container
	Attempt uint32 `json:"attempt,omitempty"`

	// Says is the CRI's word: of an event its type (CREATED, STARTED, STOPPED,
	// DELETED), else the state (CREATED, RUNNING, EXITED, UNKNOWN, READY,
	// NOTREADY), ABSENT for what a full list lacks, NOTFOUND for what a
	// status call did not find; of a call that failed the code and message.
	Says  string `json:"says"`
	State string `json:"state,omitempty"` // of an event: the state of the entity in its payload, if it is there

	EventAt    int64  `json:"event_at,omitempty"` // created_at of the event
	CreatedAt  int64  `json:"created_at,omitempty"`
	StartedAt  int64  `json:"started_at,omitempty"`
	FinishedAt int64  `json:"finished_at,omitempty"`
	ExitCode   int32  `json:"exit_code,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Method     string `json:"method,omitempty"` // of a call
}

// Sample is what the mode has cost since its start.
type Sample struct {
	At      int64            `json:"at"`
	Calls   map[string]Calls `json:"calls,omitempty"`   // by method, such as ListContainers
	CPU     int64            `json:"cpu,omitempty"`     // ns of processor time, user and system; 0 in a replay
	Allocs  uint64           `json:"allocs,omitempty"`  // objects
	Alloced uint64           `json:"alloced,omitempty"` // bytes
	RSS     int64            `json:"rss,omitempty"`     // bytes of memory now, the most so far
	Commits uint64           `json:"commits,omitempty"` // transactions of the state
	Fsyncs  uint64           `json:"fsyncs,omitempty"`  // see fsyncsPerCommit
}

// Calls counts the calls of one method. A stream is one call; what it brought
// counts in bytes.
type Calls struct {
	Calls    uint64 `json:"calls"`
	Failed   uint64 `json:"failed,omitempty"`
	Sent     int64  `json:"sent"`     // bytes of messages, with gRPC's framing
	Received int64  `json:"received"` // bytes of messages, with gRPC's framing
}

// Note is something that whoever reads the report should know, such as a line
// of the mode's log.
type Note struct {
	At   int64  `json:"at"`
	Text string `json:"text"`
}

// End is the last line.
type End struct {
	At  int64  `json:"at"`
	Err string `json:"err,omitempty"` // "" where it was asked to end
}
