package arbiter

import "github.com/plegd/plegd/store"

// The CRI's numbers for states. They are written out here, so that the core
// needs no generated code; a test compares them with cri-api.
const (
	criContainerCreated = 0
	criContainerRunning = 1
	criContainerExited  = 2
	criSandboxReady     = 0
	criSandboxNotReady  = 1
)

// rung returns the state that a CRI number shows, StateNone for UNKNOWN and
// for numbers outside the enum: they show nothing (docs/design.md, ladders).
func rung(k store.Kind, cri int32) store.State {
	switch {
	case k == store.KindSandbox && cri == criSandboxReady:
		return store.StateUp
	case k == store.KindSandbox && cri == criSandboxNotReady:
		return store.StateDown
	case k == store.KindContainer && cri == criContainerCreated:
		return store.StateCreated
	case k == store.KindContainer && cri == criContainerRunning:
		return store.StateUp
	case k == store.KindContainer && cri == criContainerExited:
		return store.StateDown
	default:
		return store.StateNone
	}
}

// claimed returns the state that an event's type names, StateNone for a type
// outside the enum.
func claimed(t EventKind) store.State {
	switch t {
	case EventCreated:
		return store.StateCreated
	case EventStarted:
		return store.StateUp
	case EventStopped:
		return store.StateDown
	case EventDeleted:
		return store.StateRemoved
	default:
		return store.StateNone
	}
}

// eventType returns the journal's word for reaching a state.
func eventType(k store.Kind, s store.State) store.EventType {
	return eventTypes[k][s]
}

var eventTypes = [...][store.StateRemoved + 1]store.EventType{
	store.KindSandbox:   {"", store.SandboxCreated, store.SandboxReady, store.SandboxNotReady, store.SandboxRemoved},
	store.KindContainer: {"", store.ContainerCreated, store.ContainerStarted, store.ContainerDied, store.ContainerRemoved},
}

// bit is a state's bit in Record.Shown.
func bit(s store.State) uint8 { return 1 << s }

// climb raises the state reached; a state never sinks but by lower (O3). Being
// further makes every question that was given up worth asking again.
func climb(r *store.Record, to store.State) {
	if to > r.State {
		r.State = to
		r.GaveUp, r.Disputes = 0, 0
	}
}

// exitUnknown reports whether something showed an exit without its code.
func exitUnknown(r *store.Record) bool { return r.ExitSeen && !r.Exit.Known() }
