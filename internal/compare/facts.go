package compare

import (
	"github.com/plegd/plegd/store"
)

// rung is how far an entity has come, from 1 (created) to 4 (removed).
type rung int

const (
	rungCreated rung = 1
	rungUp      rung = 2
	rungDown    rung = 3
	rungRemoved rung = 4
)

// held is the rung as a cache has it: nothing is kept of what is removed.
func (r rung) held() rung {
	if r == rungRemoved {
		return 0
	}
	return r
}

// steps are the types of event by kind and rung.
var steps = map[store.EventType]rung{
	store.SandboxCreated: rungCreated, store.SandboxReady: rungUp, store.SandboxNotReady: rungDown, store.SandboxRemoved: rungRemoved,
	store.ContainerCreated: rungCreated, store.ContainerStarted: rungUp, store.ContainerDied: rungDown, store.ContainerRemoved: rungRemoved,
}

// Types lists the transitions in the order of reports.
var Types = []store.EventType{
	store.SandboxCreated, store.SandboxReady, store.SandboxNotReady, store.SandboxRemoved,
	store.ContainerCreated, store.ContainerStarted, store.ContainerDied, store.ContainerRemoved,
}

// rungOf returns the rung that an observation shows, 0 for none.
func rungOf(r *Raw) rung {
	word := r.Says
	if r.Via == ViaEvent && r.State != "" && r.Says != "DELETED" {
		word = r.State
	}
	switch word {
	case "CREATED":
		return rungCreated
	case "STARTED", "RUNNING", "READY":
		return rungUp
	case "STOPPED", "EXITED", "NOTREADY":
		return rungDown
	case "DELETED", saysAbsent, saysNotFound:
		return rungRemoved
	}
	return 0
}

// claims are the rungs that the types of events name.
var claims = map[string]rung{"CREATED": rungCreated, "STARTED": rungUp, "STOPPED": rungDown, "DELETED": rungRemoved}

// fact is what is known of one entity from all that was said to any mode.
type fact struct {
	pod                        Pod
	created, started, finished int64 // the runtime's, 0 unknown
	code                       int32
	reason                     string
	exitAt                     int64    // when the exit was said
	rank                       int      // of what the times are from; see rankOf
	event                      [5]int64 // by rung: created_at of the first event that named it
	shown                      [5]int64 // by rung: when it was first shown to have come so far or further
	alive                      int64    // when an answer last showed it, 0 never
}

// rankOf is how much the fields of an observation are worth: a status before
// the payload of an event, since that was read earlier, before an item of a
// list, whose times differ from the status on CRI-O.
func rankOf(v Via) int {
	return map[Via]int{ViaList: 1, ViaEvent: 2, ViaStatus: 3}[v]
}

// facts collects what was said.
func facts(traces []*Trace) map[string]*fact {
	all := map[string]*fact{}
	for _, t := range traces {
		for i := range t.Raws {
			r := &t.Raws[i]
			if r.ID == "" || r.Via == ViaCall {
				continue
			}
			f := all[r.ID]
			if f == nil {
				f = &fact{}
				all[r.ID] = f
			}
			f.take(r)
		}
	}
	return all
}

// take adds one observation.
func (f *fact) take(r *Raw) {
	if r.Pod.UID != "" {
		f.pod = r.Pod
	}
	if rank := rankOf(r.Via); rank >= f.rank || f.created == 0 {
		if r.CreatedAt > 0 {
			f.created, f.rank = r.CreatedAt, rank
		}
	}
	if r.StartedAt > 0 {
		f.started = r.StartedAt
	}
	// The same exit may be told again with more of its reason.
	if r.FinishedAt > f.finished || r.FinishedAt > 0 && r.FinishedAt == f.finished && r.At >= f.exitAt {
		f.finished, f.code, f.reason, f.exitAt = r.FinishedAt, r.ExitCode, r.Reason, r.At
	}
	if c := claims[r.Says]; r.Via == ViaEvent && c > 0 && r.EventAt > 0 && f.event[c] == 0 {
		f.event[c] = r.EventAt
	}
	at := rungOf(r)
	for k := rungCreated; k <= at; k++ {
		if f.shown[k] == 0 || r.At < f.shown[k] {
			f.shown[k] = r.At
		}
	}
	if at > 0 && at < rungRemoved && r.Via != ViaEvent {
		f.alive = max(f.alive, r.At)
	}
}

// field returns the runtime's own time of a transition, 0 where there is none.
func (f *fact) field(t store.EventType) int64 {
	switch t {
	case store.SandboxCreated, store.ContainerCreated:
		return f.created
	case store.ContainerStarted:
		return f.started
	case store.ContainerDied:
		return f.finished
	}
	return 0
}
