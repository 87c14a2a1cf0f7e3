package compare

import (
	"cmp"
	"slices"
	"time"

	"github.com/plegd/plegd/store"
)

// Happened is one entry of the history of a runtime that keeps one.
type Happened struct {
	At         int64           `json:"at"`
	Type       store.EventType `json:"type"`
	ID         string          `json:"id"`
	Sandbox    string          `json:"sandbox"`
	Pod        Pod             `json:"pod"`
	Name       string          `json:"name,omitempty"`
	Attempt    uint32          `json:"attempt,omitempty"`
	ExitCode   int32           `json:"exit_code,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	CreatedAt  int64           `json:"created_at,omitempty"`
	StartedAt  int64           `json:"started_at,omitempty"`
	FinishedAt int64           `json:"finished_at,omitempty"`
}

// key names a transition.
type key struct {
	id  string
	typ store.EventType
}

// telling is what one mode told of one transition.
type telling struct {
	first *Event // when it was first told
	last  Event  // with what was amended
	again int    // how often it was told again without a return between
	mixed *Event // a later state that was told before it
	fixed bool   // amended
}

// told is what one mode told.
type told struct {
	by  map[key]*telling
	ids map[string][]*Event // by entity, in order
}

// tell collects what a mode told.
func tell(t *Trace) told {
	out := told{by: map[key]*telling{}, ids: map[string][]*Event{}}
	last := map[string]*Event{} // the highest of its present life
	for i := range t.Events {
		ev := &t.Events[i]
		if ev.ID == "" {
			continue
		}
		at := steps[ev.Type]
		switch {
		case ev.Change == store.ChangeRegressed:
			delete(last, ev.ID) // a new life
			out.ids[ev.ID] = append(out.ids[ev.ID], ev)
			continue
		case ev.Change == store.ChangeAmended:
			out.amend(ev)
			continue
		case at == 0:
			continue
		}
		out.ids[ev.ID] = append(out.ids[ev.ID], ev)
		k := key{ev.ID, ev.Type}
		have, high := out.by[k], last[ev.ID]
		switch {
		case have == nil:
			have = &telling{first: ev, last: *ev}
			if high != nil && steps[high.Type] > at {
				have.mixed = high
			}
			out.by[k] = have
		case high != nil && steps[high.Type] >= at: // else it is of the next life
			have.again++
		}
		if high == nil || at > steps[high.Type] {
			last[ev.ID] = ev
		}
	}
	return out
}

// amend takes what became known later.
func (o *told) amend(ev *Event) {
	has := func(field string) bool { return slices.Contains(ev.Changed, field) }
	if k := o.by[key{ev.ID, store.ContainerDied}]; k != nil && ev.ExitKnown &&
		(has(store.FieldExitCode) || has(store.FieldReason) || has(store.FieldFinishedAt)) {
		k.last.ExitKnown, k.last.ExitCode, k.last.Reason, k.last.OccurredAt = true, ev.ExitCode, ev.Reason, ev.OccurredAt
		k.fixed = true
	}
	if k := o.by[key{ev.ID, store.ContainerStarted}]; k != nil && !ev.ExitKnown && has(store.FieldStartedAt) {
		k.last.OccurredAt = ev.OccurredAt
		k.fixed = true
	}
}

// truth is what happened, as far as it can be known.
type truth struct {
	facts   map[string]*fact
	told    []told // by mode
	history map[key]*Happened
	late    int64
	from    int64
	all     map[key]Transition // whenever it happened
}

// newTruth makes the union of what the modes told, and of the history if there
// is one, and finds when each happened.
func newTruth(in *Input) *truth {
	t := &truth{facts: facts(in.Traces), history: map[key]*Happened{}, late: int64(in.Late), from: in.From, all: map[key]Transition{}}
	for _, trace := range in.Traces {
		t.told = append(t.told, tell(trace))
	}
	for i := range in.History {
		h := &in.History[i]
		t.history[key{h.ID, h.Type}] = h
		t.add(key{h.ID, h.Type}, Transition{ID: h.ID, Type: h.Type, Sandbox: h.Sandbox, Pod: h.Pod, Name: h.Name, Attempt: h.Attempt})
	}
	for m := range t.told {
		for k, one := range t.told[m].by {
			if t.false(k) == "" {
				t.add(k, Transition{ID: k.id, Type: k.typ, Sandbox: one.first.Sandbox, Pod: one.first.Pod, Name: one.first.Name, Attempt: one.first.Attempt})
			}
		}
	}
	return t
}

// add adds a transition that isn't there yet.
func (t *truth) add(k key, tr Transition) {
	if _, have := t.all[k]; have {
		return
	}
	tr.At, tr.Basis = t.when(k)
	tr.Told = make([]int64, len(t.told))
	for m := range t.told {
		if one := t.told[m].by[k]; one != nil {
			tr.Told[m] = one.first.At
		}
	}
	// The runtime's word on the pod counts, not a mode's.
	for _, id := range []string{k.id, tr.Sandbox} {
		if f := t.facts[id]; f != nil && f.pod.UID != "" {
			tr.Pod = f.pod
		}
	}
	if f := t.facts[k.id]; f != nil {
		if k.typ == store.ContainerDied && f.finished != 0 {
			code := f.code
			tr.Exit, tr.Reason = &code, f.reason
		}
	}
	if h := t.history[k]; h != nil && k.typ == store.ContainerDied {
		code := h.ExitCode
		tr.Exit, tr.Reason = &code, h.Reason
	}
	t.all[k] = tr
}

// when finds when a transition happened: by the history, else by the runtime's
// own field, else by the time of its event. None can be later than the moment
// at which somebody knew of it; one that is much earlier than all modes' lists,
// which did not show it, is nonsense, such as seconds taken for nanoseconds.
func (t *truth) when(k key) (at int64, basis Basis) {
	seen := int64(0)
	earliest := func(at int64) {
		if at != 0 && (seen == 0 || at < seen) {
			seen = at
		}
	}
	for m := range t.told {
		if one := t.told[m].by[k]; one != nil {
			earliest(one.first.At)
		}
	}
	if h := t.history[k]; h != nil {
		return h.At, BasisHistory
	}
	f := t.facts[k.id]
	if f == nil {
		return seen, BasisSeen
	}
	earliest(f.shown[steps[k.typ]])
	sane := func(at int64) bool {
		return at > 0 && at <= seen && (at >= t.from || seen <= t.from+t.late)
	}
	if at := f.field(k.typ); sane(at) {
		return at, BasisRuntime
	}
	if at := f.event[steps[k.typ]]; sane(at) {
		return at, BasisEvent
	}
	return seen, BasisSeen
}

// settleTime: an answer that shows what was told to be gone so much later was
// true after it. A list may be under way when the event of a removal comes.
const settleTime = int64(2 * time.Second)

// false says why something that was told did not happen, "" if it may have.
func (t *truth) false(k key) string {
	if _, ok := t.history[k]; !ok && len(t.history) > 0 && t.covered(k) {
		return "it did not happen"
	}
	f := t.facts[k.id]
	if f == nil || steps[k.typ] != rungRemoved || f.alive == 0 {
		return ""
	}
	first := int64(0)
	for m := range t.told {
		if one := t.told[m].by[k]; one != nil && (first == 0 || one.first.At < first) {
			first = one.first.At
		}
	}
	if first != 0 && f.alive > first+settleTime {
		return "the runtime still showed it " + words(f.alive-first) + " later"
	}
	return ""
}

// covered reports whether the history would have the transition: it has
// something of the entity.
func (t *truth) covered(k key) bool {
	for _, typ := range Types {
		if _, ok := t.history[key{k.id, typ}]; ok {
			return true
		}
	}
	return false
}

// sorted returns the transitions of the measurement by time.
func (t *truth) sorted(from, to int64) []Transition {
	var out []Transition
	for _, tr := range t.all {
		if tr.At >= from && tr.At <= to {
			out = append(out, tr)
		}
	}
	slices.SortFunc(out, func(a, b Transition) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID), cmp.Compare(steps[a.Type], steps[b.Type]))
	})
	return out
}
