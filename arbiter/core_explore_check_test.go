package arbiter

import (
	"fmt"
	"maps"

	"github.com/plegd/plegd/store"
)

// check is the oracle of one step, beside what the rig checks after each (once
// per incarnation and in order, nothing known is lost, what is stored is what
// the core holds). It returns what is wrong, "" if nothing is.
func (n *node) check(w *smallWorld, out *Output, in Input) string {
	if len(n.faults) > 0 {
		return n.faults[0]
	}
	for _, t := range out.Changes.Tombstones {
		slot := w.slot(t.ID)
		if n.truly.of(slot).exists() && n.seen.lies[slot] < 2 {
			return fmt.Sprintf("O4: %s is taken for removed and exists", t.ID)
		}
	}
	for _, r := range out.Changes.Records {
		if why := n.checkRecord(w, r); why != "" {
			return why
		}
	}
	_, event := in.(*EventSeen)
	for i := range out.Changes.Events {
		if why := n.checkTold(w, &out.Changes.Events[i], event); why != "" {
			return why
		}
	}
	return ""
}

// checkRecord: a record is not further than the truth, and says nothing else.
func (n *node) checkRecord(w *smallWorld, r *store.Record) string {
	slot := w.slot(r.ID)
	p, x := n.truly.of(slot), &w.things[slot]
	switch {
	case r.State == store.StateUp && !p.started():
		return fmt.Sprintf("O1: %s is recorded as up and never was", r.ID)
	case r.State == store.StateDown && !p.ended():
		return fmt.Sprintf("O1: %s is recorded as down and is not", r.ID)
	case r.Started && !p.started():
		return fmt.Sprintf("O2: %s counts as started and never was", r.ID)
	case r.StartedAt != 0 && r.StartedAt != x.startedAt:
		return fmt.Sprintf("O7: %s is recorded as started at %d", r.ID, r.StartedAt)
	case r.Exit.Known() && !p.ended():
		return fmt.Sprintf("O7: %s has an exit and has not ended", r.ID)
	case r.Sandbox != x.sandbox:
		return fmt.Sprintf("O7: %s is recorded in %s", r.ID, r.Sandbox)
	}
	return ""
}

// checkTold: what the journal says has happened.
func (n *node) checkTold(w *smallWorld, ev *store.Event, byEvent bool) string {
	id := eventID(ev)
	slot := w.slot(id)
	p, bit := n.truly.of(slot), uint8(1)<<slot
	if ev.Change == store.ChangeRegressed {
		n.seen.begun &^= bit
		if n.seen.lies[slot] < 2 && n.seen.lowers[slot] < 2 {
			return fmt.Sprintf("O3: %s returns to an earlier state, which it never did", id)
		}
		if ev.State == "running" || ev.State == "ready" { // which tells of the start too
			n.seen.begun |= bit
		}
		return ""
	}
	r := n.recordOf(id)
	switch stateOf[ev.Type] {
	case store.StateCreated:
		// That it was and is no more may be told in one.
		if byEvent && n.seen.listed&bit != 0 && n.core.ents[id] != nil {
			return fmt.Sprintf("O5: an event introduced %s, which a list has shown to be gone", id)
		}
	case store.StateUp:
		n.seen.begun |= bit
		if !p.started() {
			return fmt.Sprintf("O1: %s was told to be up and never was", id)
		}
	case store.StateDown:
		// What was seen exited once, if only by mistake, may be told so when it
		// is gone: nobody can ask any more (O2).
		if (!p.ended() || p == goneMade && n.seen.exit&bit == 0) && n.seen.lies[slot] < 2 {
			return fmt.Sprintf("O1: %s was told to be down and never was", id)
		}
		if r != nil && r.Started && n.seen.begun&bit == 0 {
			return fmt.Sprintf("O9: the end of %s was told and its start was not", id)
		}
	case store.StateRemoved:
		n.seen.begun &^= bit
	}
	return ""
}

// recordOf is the live or last record of an id.
func (n *node) recordOf(id string) *store.Record {
	if e := n.core.ents[id]; e != nil {
		return &e.rec
	}
	return n.core.tombs[id]
}

// routine returns what happens next when all is quiet: calls in flight are
// answered with the oldest that they can say, what is due is asked, and full
// lists are sent, as many as rounds says. ok is false when there is nothing
// left to do.
func (n *node) routine(rounds *int) (a action, ok bool) {
	switch {
	case len(n.calls) > 0:
		return act(doAnswer, 0, 0), true
	case len(n.due) > 0:
		first := 0
		for i := range n.due {
			if n.due[i].notBefore < n.due[first].notBefore {
				first = i
			}
		}
		wait := n.due[first].notBefore - n.mono - pace
		for i, d := range pauses {
			if wait > 0 && (wait <= d || i == len(pauses)-1) {
				return act(doWait, i, 0), true
			}
		}
		return act(doSend, first+1, 0), true
	case *rounds == oneRound && !n.unsure():
		return 0, false
	case *rounds > 0:
		if *rounds%2 == 0 {
			*rounds--
			return act(doWait, waitShort, 0), true
		}
		*rounds--
		return act(doSend, 0, 0), true
	default:
		return 0, false
	}
}

// quietRounds are two relists with a wait before each; oneRound is what is left of
// them after one.
const quietRounds, oneRound = 4, 2

// unsure reports whether another relist is to decide a removal, since one that lacks
// something proves little: half of everything is missing from it, or the runtime may
// have only half of it loaded (O4).
func (n *node) unsure() bool {
	for _, e := range n.core.ents {
		if e.bulk || e.absent.weak {
			return true
		}
	}
	return false
}

// quiet makes everything still: nothing changes or goes wrong any more, and
// what events were on their way are lost.
func (n *node) quiet() {
	n.events, n.left, n.used = n.events[:0], 0, faultsAll
	n.holding = false
}

// settle lets it be quiet and says what differs from the truth after one relist, two
// where O4 asks, and all inspections that are due. done is asked before each action
// whether it has gone on from the same state already; what was done is left in
// trace.
func (n *node) settle(w *smallWorld, u *said, done func(rounds int) bool, trace *[]action) string {
	n.quiet()
	for rounds, steps := quietRounds, 0; !done(rounds); steps++ {
		if steps > 300 {
			return fmt.Sprintf("O8: questions without end: %v", n.due)
		}
		a, ok := n.routine(&rounds)
		if !ok {
			return n.settled(w)
		}
		*trace = append(*trace, a)
		if why := n.do(w, u, a); why != "" {
			return why
		}
	}
	return ""
}

// settled says how the agent differs from the truth when all is quiet.
func (n *node) settled(w *smallWorld) string {
	t := w.asThey[n.truly]
	if t == nil {
		t = w.truth(n.truly)
	}
	if why := t.differs(n.core); why != "" {
		return "promise: " + why
	}
	for i := range w.things {
		x, p := &w.things[i], n.truly.of(i)
		told, ok := n.mem.told[store.Key{Kind: x.kind, ID: x.id}]
		if p.gone() && ok && told.state != store.StateRemoved {
			return fmt.Sprintf("promise: the removal of %s was never told", x.id)
		}
	}
	return ""
}

// remember makes the truths of all versions that can be, for several goroutines.
func (w *smallWorld) remember() {
	seen := map[version]bool{w.at: true}
	for todo := []version{w.at}; len(todo) > 0; todo = todo[1:] {
		for slot := range w.things {
			for _, p := range w.next(slot, todo[0]) {
				if v := w.moved(todo[0], slot, p); !seen[v] {
					seen[v] = true
					todo = append(todo, v)
				}
			}
		}
	}
	for v := range maps.Keys(seen) {
		w.asThey[v] = w.truth(v)
	}
}
