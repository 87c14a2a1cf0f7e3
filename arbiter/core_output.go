package arbiter

import (
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// Now is the moment of a step, given by the caller: the core has no clock.
type Now struct {
	Stamp      timestamps.Stamp
	Running    int64           // the agent's running time over all its lives, ns
	OldestCall timestamps.Tick // tick of the oldest call still in flight, 0 when none is
}

// ActionKind is what the core wants asked of the runtime.
type ActionKind uint8

// The kinds of action.
const (
	// ActStatus: the status of one entity. Where the kind is not known
	// (Action.Entity 0), as a container first, then as a sandbox.
	ActStatus ActionKind = iota + 1
	// ActLook: two lists filtered by Action.ID, a sandbox.
	ActLook
	// ActPod: two lists filtered by the UID label of Action.ID, a pod's UID.
	ActPod
	// ActList: the two full lists, now rather than at the end of the period.
	ActList
)

// Action is one question to the runtime. The caller sends it not before
// NotBefore, later still by a back-off that follows Attempt, and submits
// whatever comes of it, an error too. The core has at most one action of a
// kind and id outstanding. It hands the same out once more when that is to go
// sooner than was said, since there is a fresh reason: one that was not sent yet
// then goes at the earlier time; one that is in flight is followed by another.
type Action struct {
	Kind      ActionKind
	Entity    store.Kind // ActStatus: 0 unknown
	ID        string     // entity, sandbox or pod key; "" for ActList
	PodKey    string     // calls for one pod keep a minimum gap
	Attempt   int        // failed or fruitless tries before this one
	NotBefore int64      // monotonic ns, 0 at once
	Unknown   bool       // nothing but old events speaks of the entity; those that are known go first
}

// Key names the outstanding question of which there is at most one.
func (a Action) Key() ActionKey { return ActionKey{a.Kind, a.ID} }

// ActionKey identifies an action.
type ActionKey struct {
	Kind ActionKind
	ID   string
}

// Fault is the last error of an entity's inspection; Err is "" when it works again.
type Fault struct {
	Key store.Key
	Err string
}

// Fresh says up to when a pod, or everything, is known: an answer to a call
// sent at this tick has been applied.
type Fresh struct {
	PodKey string // "" for everything
	Sent   timestamps.Tick
}

// Miss is a change that a list found although the stream should have told it.
type Miss struct {
	Key   store.Key
	State store.State // as first seen
	Kind  MissKind    // what was not told
}

// Relist is the core's verdict on a completed full list, for the adaptive
// period.
type Relist struct {
	Misses  int  // changes whose events had long been due
	Clean   bool // the stream is up and nothing was missed
	Changed int  // entities that this list changed
}

// Output is what a step decided. The caller, in this order: writes Changes in
// one transaction, publishes it to readers (events, records, then Fresh,
// Confirmed, Faults), and sends Actions to the runtime; Actions may go out
// before the transaction is done, since asking changes nothing.
type Output struct {
	Changes   store.Batch // without Meta; events without positions
	Actions   []Action
	Fresh     []Fresh
	Confirmed []store.Key // restored entities that this run has now seen
	Faults    []Fault
	Misses    []Miss
	Habits    []HabitChange        // what the runtime was found to send no events for, or to send after all
	Renewed   bool                 // another runtime or version answers: what was held against the one before is void
	Relist    *Relist              // set when a full list was applied
	Anomalies []timestamps.Anomaly // of the event's time
	Ignored   int                  // messages or items that could not be placed
	Step      int64                // a wall clock step that was noticed, ns
	Shrink    bool                 // back to the base period at once
	Wake      int64                // monotonic ns at which TimePassed is wanted, 0 never
}
