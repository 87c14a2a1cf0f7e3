package sim_test

import (
	"sync"
	"time"

	"github.com/plegd/plegd/internal/oracletest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// gone is what an answer claims that lacks an entity, or an event that says that
// it was removed.
const gone = "gone"

// past is the runtime's own history by entity, as far as it was read. It is read
// when it is asked for.
type past struct {
	rt *simruntime.Runtime

	mu  sync.Mutex
	seq uint64
	of  map[string][]simruntime.Transition
	ids []string // in the order in which they were created
}

// read reads what is new. The caller holds the lock.
func (p *past) read() {
	if p.of == nil {
		p.of = map[string][]simruntime.Transition{}
	}
	for _, tr := range p.rt.HistorySince(p.seq) {
		if len(p.of[tr.ID]) == 0 {
			p.ids = append(p.ids, tr.ID)
		}
		p.seq, p.of[tr.ID] = tr.Seq, append(p.of[tr.ID], tr)
	}
}

// after is the state that an entity is in after a step, by its CRI name.
func after(tr simruntime.Transition) string {
	if tr.Step == simruntime.Removed {
		return gone
	}
	return tr.State
}

// was says whether an entity was ever in a state, by its CRI name or gone, from
// one time to another, both included. Before it was created it was gone.
func (p *past) was(id, state string, from, to time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read()
	now, since := gone, time.Time{}
	for _, tr := range p.of[id] {
		if now == state && !since.After(to) && !tr.At.Before(from) {
			return true
		}
		now, since = after(tr), tr.At
	}
	return now == state && !since.After(to)
}

// did says whether a step of an entity was done by a time.
func (p *past) did(id string, by time.Time, steps ...simruntime.Step) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read()
	for _, tr := range p.of[id] {
		for _, s := range steps {
			if tr.Step == s && !tr.At.After(by) {
				return true
			}
		}
	}
	return false
}

// all returns the ids of a kind that were ever created, in a sandbox or pod where
// one is named.
func (p *past) all(kind simruntime.Kind, f filter) (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read()
	for _, id := range p.ids {
		tr := p.of[id][0]
		if tr.Kind == kind && (f.sandbox == "" || tr.SandboxID == f.sandbox) && (f.pod == "" || tr.PodUID == f.pod) {
			ids = append(ids, id)
		}
	}
	return ids
}

// steps is what the journal calls a transition. An edit is none of its words.
var steps = map[simruntime.Kind]map[simruntime.Step]store.EventType{
	simruntime.Sandbox: {
		simruntime.Created: store.SandboxCreated, simruntime.Ready: store.SandboxReady,
		simruntime.NotReady: store.SandboxNotReady, simruntime.Removed: store.SandboxRemoved,
	},
	simruntime.Container: {
		simruntime.Created: store.ContainerCreated, simruntime.Started: store.ContainerStarted,
		simruntime.StartFailed: store.ContainerDied, simruntime.Exited: store.ContainerDied, simruntime.Removed: store.ContainerRemoved,
	},
}

// word is a transition as the journal would tell it, "" for an edit.
func word(tr simruntime.Transition) store.EventType { return steps[tr.Kind][tr.Step] }

// place is the place of a transition in a life; 0 for an edit.
func place(tr simruntime.Transition) int { return oracletest.Rank(store.Event{Type: word(tr)}) }

// places are those of the states, by their CRI names and by the journal's.
var places = map[string]int{
	"CONTAINER_CREATED": 1, "CONTAINER_RUNNING": 2, "CONTAINER_EXITED": 3, "SANDBOX_READY": 2, "SANDBOX_NOTREADY": 3, gone: 4,
	"created": 1, "running": 2, "ready": 2, "exited": 3, "notready": 3, "removed": 4,
}
