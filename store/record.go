package store

import (
	"maps"
	"slices"
	"strings"

	"github.com/plegd/plegd/timestamps"
)

// Kind tells sandboxes from containers.
type Kind uint8

// The kinds of entity a runtime has.
const (
	KindSandbox   Kind = 1
	KindContainer Kind = 2
)

// String returns "sandbox" or "container".
func (k Kind) String() string {
	switch k {
	case KindSandbox:
		return "sandbox"
	case KindContainer:
		return "container"
	default:
		return "invalid"
	}
}

// State is how far a sandbox or a container has come in its life. States of
// one incarnation only grow.
type State uint8

// The states. A sandbox that is up is ready, one that is down is not ready; a
// container that is up is running, one that is down has exited.
const (
	StateNone    State = 0
	StateCreated State = 1
	StateUp      State = 2
	StateDown    State = 3
	StateRemoved State = 4
)

// Name returns the field's own word for the state of an entity of this kind:
// created, running, exited, removed, or created, ready, notready, removed.
func (s State) Name(k Kind) string {
	switch {
	case s == StateCreated:
		return "created"
	case s == StateUp && k == KindSandbox:
		return "ready"
	case s == StateUp:
		return "running"
	case s == StateDown && k == KindSandbox:
		return "notready"
	case s == StateDown:
		return "exited"
	case s == StateRemoved:
		return "removed"
	default:
		return "none"
	}
}

// ReportedNone in [Record.Reported] means that no state was reported.
const ReportedNone = -1

// PodRef names a pod. See [Record.PodKey].
type PodRef struct {
	UID       string `cbor:"1,keyasint,omitempty"`
	Namespace string `cbor:"2,keyasint,omitempty"`
	Name      string `cbor:"3,keyasint,omitempty"`
}

// Identity is what an entity is called. It doesn't change in an entity's life
// as far as the CRI goes, but a list may say less of it than a status does.
type Identity struct {
	Pod     PodRef            `cbor:"1,keyasint,omitzero"`
	Name    string            `cbor:"2,keyasint,omitempty"` // container name
	Attempt uint32            `cbor:"3,keyasint,omitempty"` // CRI metadata attempt
	Image   string            `cbor:"4,keyasint,omitempty"` // container image as reported
	Labels  map[string]string `cbor:"5,keyasint,omitempty"` // of a sandbox: the pod's labels
}

// Equal reports whether both say the same.
func (i *Identity) Equal(o *Identity) bool {
	return i.Pod == o.Pod && i.Name == o.Name && i.Attempt == o.Attempt && i.Image == o.Image && maps.Equal(i.Labels, o.Labels)
}

// IsZero reports whether it says nothing at all.
func (i *Identity) IsZero() bool {
	return i.Pod == PodRef{} && i.Name == "" && i.Attempt == 0 && i.Image == "" && len(i.Labels) == 0
}

// Exit is how a container ended. It is known if and only if FinishedAt is not
// zero, and then code 0 is a value (CRI ContainerStatus.exit_code).
type Exit struct {
	Code       int32  `cbor:"1,keyasint,omitempty"`
	FinishedAt int64  `cbor:"2,keyasint,omitempty"` // ns since the Unix epoch by the runtime
	Reason     string `cbor:"3,keyasint,omitempty"`
	Message    string `cbor:"4,keyasint,omitempty"`
}

// Known reports whether the exit was reported at all.
func (e Exit) Known() bool { return e.FinishedAt != 0 }

// Evidence is when, in ticks, a group of fields was true, and how strong the
// observation was that said so. It decides which of two values stays (rule O7
// of docs/design.md) and is not part of a record's content.
type Evidence struct {
	Span  timestamps.Span `cbor:"1,keyasint,omitzero"`
	State State           `cbor:"2,keyasint,omitempty"` // the state that the observation showed
	Full  bool            `cbor:"3,keyasint,omitempty"` // a status; a list item otherwise
}

// Evidences holds one Evidence for each group of fields of a record.
type Evidences struct {
	Identity Evidence `cbor:"1,keyasint,omitzero"`
	Reported Evidence `cbor:"2,keyasint,omitzero"`
	Created  Evidence `cbor:"3,keyasint,omitzero"`
	Started  Evidence `cbor:"4,keyasint,omitzero"`
	Exit     Evidence `cbor:"5,keyasint,omitzero"`
	IPs      Evidence `cbor:"6,keyasint,omitzero"`
	Rest     Evidence `cbor:"7,keyasint,omitzero"`
}

// Record is all that is known of one sandbox or one container. Records are
// immutable once they have been handed over: whoever wants another value
// copies the struct first.
type Record struct {
	Kind     Kind     `cbor:"1,keyasint"`
	ID       string   `cbor:"2,keyasint"`
	Sandbox  string   `cbor:"3,keyasint,omitempty"` // the sandbox that a container names; of a sandbox its own id
	Identity Identity `cbor:"4,keyasint,omitzero"`

	Incarnation uint32 `cbor:"5,keyasint"`           // 1, and one more after each confirmed return to an earlier state
	State       State  `cbor:"6,keyasint"`           // the furthest state reached in this incarnation
	Journaled   State  `cbor:"7,keyasint,omitempty"` // the furthest state told in the journal
	Reported    int32  `cbor:"8,keyasint"`           // the CRI state as last reported, [ReportedNone] if never

	CreatedAt int64    `cbor:"9,keyasint,omitempty"`  // ns, 0 unknown
	StartedAt int64    `cbor:"10,keyasint,omitempty"` // ns, 0 unknown; containers only
	Exit      Exit     `cbor:"11,keyasint,omitzero"`  // containers only
	IPs       []string `cbor:"12,keyasint,omitempty"` // sandboxes only, in the runtime's order; kept after termination

	HostNetwork bool `cbor:"13,keyasint,omitempty"` // sandbox shares the node's network, so it has no IP of its own
	Started     bool `cbor:"14,keyasint,omitempty"` // proof that it was up, though the state may have skipped it
	Provisional bool `cbor:"15,keyasint,omitempty"` // only an old event spoke of it; not shown, not journaled until confirmed
	Quiet       bool `cbor:"16,keyasint,omitempty"` // provisional and older than the tombstone horizon: journaled only if found
	ToldUnknown bool `cbor:"17,keyasint,omitempty"` // the unknown state was journaled in this incarnation
	ExitSeen    bool `cbor:"18,keyasint,omitempty"` // something without code or finish time said that it exited

	FirstSeen timestamps.Tick `cbor:"19,keyasint"`           // orders sandboxes of one pod and attempt
	Known     timestamps.Tick `cbor:"20,keyasint"`           // end of the latest observation that showed it to exist
	Removed   timestamps.Tick `cbor:"21,keyasint,omitempty"` // of a tombstone: when the removal was decided
	RemovedAt int64           `cbor:"22,keyasint,omitempty"` // of a tombstone: the agent's running time, ns

	Evidence Evidences `cbor:"23,keyasint,omitzero"`
	Rest     string    `cbor:"24,keyasint,omitempty"` // the CRI status as deterministic protobuf without the fields above that have a group of their own

	LoweredAt int64  `cbor:"25,keyasint,omitempty"` // the agent's running time at the last confirmed return, ns; rate limit
	Shown     uint8  `cbor:"26,keyasint,omitempty"` // bit 1<<State: an observation showed this very state in this incarnation
	GaveUp    Reason `cbor:"27,keyasint,omitempty"` // reasons that were asked about often enough without being settled
	Disputes  uint8  `cbor:"28,keyasint,omitempty"` // how often a status has contradicted the lists since the state was reached
}

// The keys of pods. A UID is free text of whoever made the pod, so a pod that has
// none must not be keyed by an id alone: that might be another's UID.
const (
	keyOfSandbox = "sandbox:"
	keyOfUID     = "uid:"
)

// PodKeyOfUID returns the key of the pod with this UID: the UID itself, unless
// it looks like another kind of key.
func PodKeyOfUID(uid string) string {
	if strings.HasPrefix(uid, keyOfSandbox) || strings.HasPrefix(uid, keyOfUID) {
		return keyOfUID + uid
	}
	return uid
}

// PodKeyOfSandbox returns the key of a pod without a UID: "sandbox:" and its
// sandbox's id.
func PodKeyOfSandbox(id string) string { return keyOfSandbox + id }

// ParsePodKey returns the UID that a key stands for or, where the pod has none,
// the id of its sandbox; the other one is "".
func ParsePodKey(key string) (uid, sandbox string) {
	if id, ok := strings.CutPrefix(key, keyOfSandbox); ok {
		return "", id
	}
	return strings.TrimPrefix(key, keyOfUID), ""
}

// PodKey returns the key under which the entity's pod is kept: that of its UID,
// else of its sandbox, or of a container that names no sandbox as if it were
// one.
func (r *Record) PodKey() string {
	switch {
	case r.Identity.Pod.UID != "":
		return PodKeyOfUID(r.Identity.Pod.UID)
	case r.Sandbox != "":
		return PodKeyOfSandbox(r.Sandbox)
	default:
		return PodKeyOfSandbox(r.ID)
	}
}

// SameContent reports whether both records say the same of the entity. When
// evidence alone has moved there is nothing to write: an idle node commits
// nothing.
func (r *Record) SameContent(o *Record) bool {
	if r == nil || o == nil {
		return r == o
	}
	if r == o {
		return true
	}
	return r.Kind == o.Kind && r.ID == o.ID && r.Sandbox == o.Sandbox && r.Identity.Equal(&o.Identity) &&
		r.Incarnation == o.Incarnation && r.State == o.State && r.Journaled == o.Journaled && r.Reported == o.Reported &&
		r.CreatedAt == o.CreatedAt && r.StartedAt == o.StartedAt && r.Exit == o.Exit && slices.Equal(r.IPs, o.IPs) &&
		r.HostNetwork == o.HostNetwork && r.Started == o.Started && r.Provisional == o.Provisional && r.Quiet == o.Quiet &&
		r.ToldUnknown == o.ToldUnknown && r.ExitSeen == o.ExitSeen && r.FirstSeen == o.FirstSeen &&
		r.Removed == o.Removed && r.RemovedAt == o.RemovedAt && r.LoweredAt == o.LoweredAt && r.Shown == o.Shown && r.GaveUp == o.GaveUp &&
		r.Disputes == o.Disputes &&
		r.Rest == o.Rest
}
