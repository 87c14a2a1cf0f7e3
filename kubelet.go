package pleg

import (
	"encoding/json"

	"github.com/plegd/plegd/store"
)

// KubeletEventType is the type of an event as the kubelet's pleg package names
// it.
type KubeletEventType string

// The types that GenericPLEG sends. It computes ContainerChanged too and drops
// it before sending; PodSync is not about what a runtime does.
const (
	KubeletContainerStarted KubeletEventType = "ContainerStarted"
	KubeletContainerDied    KubeletEventType = "ContainerDied"
	KubeletContainerRemoved KubeletEventType = "ContainerRemoved"
)

// KubeletEvent is one PodLifecycleEvent of the kubelet. Sandboxes count as
// containers: ContainerID is a sandbox's id as well, and the event doesn't say
// which.
type KubeletEvent struct {
	Position    Position // of the event that it follows from; several may share one
	PodUID      string   // "" where the pod has none
	Type        KubeletEventType
	ContainerID string
}

// MarshalJSON writes the event with its position as EPOCH/SEQ.
func (e KubeletEvent) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Position    string           `json:"position"`
		PodUID      string           `json:"pod_uid"`
		Type        KubeletEventType `json:"type"`
		ContainerID string           `json:"container_id"`
	}{e.Position.String(), e.PodUID, e.Type, e.ContainerID})
}

// kubeletState is the state of a container as GenericPLEG has it.
type kubeletState uint8

const (
	kubeletNonExistent kubeletState = iota
	kubeletUnknown                  // CREATED and UNKNOWN
	kubeletRunning                  // a sandbox: ready
	kubeletExited                   // a sandbox: not ready
)

// KubeletFeed turns the events of a journal, given in its order, into those
// that GenericPLEG of Kubernetes 1.29 sends for the same states. What differs:
//
//   - GenericPLEG misses what happens between two relists, and then sends a
//     ContainerDied whose ContainerStarted it never sent, or nothing at all. Here
//     both are sent.
//   - A container that the runtime reports as UNKNOWN and then as before, with
//     nothing told in between, makes GenericPLEG send the same event again. Here
//     it doesn't.
//   - Events follow when plegd knows: a removal when two witnesses agree, a death
//     when its exit code was asked for.
//
// A feed that begins in the middle of a life doesn't know its state: it takes
// what is removed first of all for exited, as it nearly always is.
//
// The zero KubeletFeed is ready. It keeps a state for each id until it is
// removed. It is not safe for concurrent use.
type KubeletFeed struct {
	states map[string]kubeletState
}

// Events returns the kubelet's events for the next event, mostly none or one.
func (f *KubeletFeed) Events(ev *Event) []KubeletEvent {
	state, ok := kubeletStateOf(ev)
	if !ok {
		return nil
	}
	id := ev.EntityID()
	old, seen := f.states[id]
	if !seen && state == kubeletNonExistent && ev.Type != store.SandboxCreated {
		old = kubeletExited
	}
	if f.states == nil {
		f.states = map[string]kubeletState{}
	}
	if ev.Type == store.SandboxRemoved || ev.Type == store.ContainerRemoved {
		delete(f.states, id)
	} else {
		f.states[id] = state
	}
	var list []KubeletEvent
	for _, t := range kubeletTransition(old, state) {
		list = append(list, KubeletEvent{Position: ev.Position, PodUID: ev.Pod.UID, Type: t, ContainerID: id})
	}
	return list
}

// kubeletStateOf returns the state that an event leaves its entity in, false
// where it says nothing of it. No list has a sandbox that is only created.
func kubeletStateOf(ev *Event) (state kubeletState, ok bool) {
	switch ev.Type {
	case store.SandboxCreated, store.SandboxRemoved, store.ContainerRemoved:
		return kubeletNonExistent, true
	case store.ContainerCreated:
		return kubeletUnknown, true
	case store.SandboxReady, store.ContainerStarted:
		return kubeletRunning, true
	case store.SandboxNotReady, store.ContainerDied:
		return kubeletExited, true
	case store.SandboxChanged, store.ContainerChanged:
		if ev.Change == store.ChangeAmended {
			return 0, false
		}
		return kubeletStateNamed(ev)
	default:
		return 0, false
	}
}

// kubeletStateNamed returns the state that a change names.
func kubeletStateNamed(ev *Event) (state kubeletState, ok bool) {
	kind := store.KindContainer
	if ev.Type == store.SandboxChanged {
		kind = store.KindSandbox
	}
	switch ev.State {
	case store.StateUp.Name(kind):
		return kubeletRunning, true
	case store.StateDown.Name(kind):
		return kubeletExited, true
	default: // created, unknown
		return kubeletUnknown, true
	}
}

// kubeletTransition is GenericPLEG's rule for one id (generateEvents in
// pkg/kubelet/pleg/generic.go), without what it drops.
func kubeletTransition(old, state kubeletState) []KubeletEventType {
	switch {
	case old == state:
		return nil
	case state == kubeletRunning:
		return []KubeletEventType{KubeletContainerStarted}
	case state == kubeletExited:
		return []KubeletEventType{KubeletContainerDied}
	case state == kubeletUnknown: // ContainerChanged, dropped
		return nil
	case old == kubeletExited:
		return []KubeletEventType{KubeletContainerRemoved}
	default:
		return []KubeletEventType{KubeletContainerDied, KubeletContainerRemoved}
	}
}
