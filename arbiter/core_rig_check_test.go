package arbiter

import "github.com/plegd/plegd/store"

// eventID is the id of the entity that an event is about.
func eventID(ev *store.Event) string {
	if ev.Container.ID != "" {
		return ev.Container.ID
	}
	return ev.SandboxID
}

// stateOf is the state that an event of this type tells.
var stateOf = map[store.EventType]store.State{
	store.SandboxCreated: store.StateCreated, store.ContainerCreated: store.StateCreated,
	store.SandboxReady: store.StateUp, store.ContainerStarted: store.StateUp,
	store.SandboxNotReady: store.StateDown, store.ContainerDied: store.StateDown,
	store.SandboxRemoved: store.StateRemoved, store.ContainerRemoved: store.StateRemoved,
}

// stateNamed is the state that an event says something is in now.
func stateNamed(ev *store.Event) store.State {
	for _, state := range []store.State{store.StateCreated, store.StateUp, store.StateDown} {
		if ev.State == state.Name(eventKey(ev).Kind) {
			return state
		}
	}
	return store.StateNone
}

// eventKey names that entity. A liar may first call an id a sandbox and then a
// container: what was told of the one is then told to be over.
func eventKey(ev *store.Event) store.Key {
	kind := store.KindSandbox
	if ev.Container.ID != "" {
		kind = store.KindContainer
	}
	return store.Key{Kind: kind, ID: eventID(ev)}
}

// checkEvent: each state is told once in an incarnation, in order (O9).
func (r *rig) checkEvent(ev *store.Event) {
	id := eventKey(ev)
	was := r.mem.told[id]
	state, lifecycle := stateOf[ev.Type]
	switch {
	case ev.Change == store.ChangeRegressed:
		if ev.Incarnation != was.incarnation+1 && was.incarnation != 0 {
			r.fault("O9: %s returns in incarnation %d after %d", id.ID, ev.Incarnation, was.incarnation)
		}
		r.mem.told[id] = toldUpTo{ev.Incarnation, stateNamed(ev)}
		return
	case !lifecycle:
		return
	case was.incarnation == 0:
	case ev.Incarnation != was.incarnation:
		r.fault("O9: %s %s in incarnation %d after %d", ev.Type, id.ID, ev.Incarnation, was.incarnation)
	case state <= was.state:
		r.fault("O9: %s %s told after state %s", ev.Type, id.ID, was.state.Name(store.KindContainer))
	}
	if ev.Type == store.ContainerDied && !ev.ExitKnown && ev.ExitCode != 0 {
		r.fault("O2: %s has a code though it is unknown", id.ID)
	}
	r.mem.told[id] = toldUpTo{ev.Incarnation, state}
}

// checkRecord: what is known is not lost (O7), states only grow (O1).
func (r *rig) checkRecord(rec *store.Record) {
	old := r.mem.records[store.Key{Kind: rec.Kind, ID: rec.ID}]
	switch {
	case old == nil:
	case old.Incarnation != rec.Incarnation:
		r.checkAddresses(old, rec)
	default:
		r.checkKept(old, rec)
	}
}

func (r *rig) checkTombstone(rec *store.Record) {
	if old := r.mem.tombs[rec.ID]; old != nil && old.Incarnation == rec.Incarnation {
		r.checkKept(old, rec)
	}
	if old := r.mem.records[store.Key{Kind: rec.Kind, ID: rec.ID}]; old != nil && old.Incarnation == rec.Incarnation {
		r.checkKept(old, rec)
	}
}

func (r *rig) checkKept(old, rec *store.Record) {
	switch {
	case rec.LoweredAt != old.LoweredAt && old.Journaled <= rec.State: // nobody was told of what is taken back (O3)
		r.checkAddresses(old, rec)
	case rec.State < old.State:
		r.fault("O1: %s sank from %d to %d in one incarnation", rec.ID, old.State, rec.State)
	case rec.Journaled < old.Journaled:
		r.fault("O9: %s forgot what was told", rec.ID)
	case old.Exit.Known() && !rec.Exit.Known():
		r.fault("O7: %s lost its exit", rec.ID)
	case old.StartedAt != 0 && rec.StartedAt == 0:
		r.fault("O7: %s lost its start", rec.ID)
	}
	r.checkAddresses(old, rec)
}

// checkAddresses: they stay over incarnations too (O3).
func (r *rig) checkAddresses(old, rec *store.Record) {
	if len(old.IPs) != 0 && len(rec.IPs) == 0 {
		r.fault("O7: %s lost its addresses", rec.ID)
	}
}

// compare: what was handed over to be stored is what the core holds.
func (r *rig) compare() {
	c := r.core
	if len(r.mem.records) != len(c.ents) || len(r.mem.tombs) != len(c.tombs) || len(r.mem.asks) != len(c.asks) {
		r.fault("D1: store has %d records, %d tombstones, %d asks; core %d, %d, %d",
			len(r.mem.records), len(r.mem.tombs), len(r.mem.asks), len(c.ents), len(c.tombs), len(c.asks))
	}
	for id, e := range c.ents {
		if !r.mem.records[store.Key{Kind: e.rec.Kind, ID: id}].SameContent(&e.rec) {
			r.fault("D1: record of %s was not handed over to be stored", id)
		}
		if c.tombs[id] != nil {
			r.fault("O6: %s is live and a tombstone", id)
		}
		r.compareTold(&e.rec)
	}
	for id, t := range c.tombs {
		r.compareTold(t)
		if r.mem.tombs[id] != t {
			r.fault("D1: tombstone of %s was not handed over to be stored", id)
		}
	}
	for id, a := range c.asks {
		if have := r.mem.asks[id]; have == nil || *have != a {
			r.fault("D1: question about %s was not handed over to be stored", id)
		}
		if e := c.ents[id]; e == nil && c.tombs[id] == nil && a.Why&^store.ReasonConfirm != 0 {
			r.fault("O8: question %v about nothing, %s", a.Why.Names(), id)
		}
	}
}

// compareTold: what a record says was told is what the journal tells. Of what is quiet
// nothing is told; of what came again after it was told removed and then forgotten,
// nothing yet (O6).
func (r *rig) compareTold(rec *store.Record) {
	told := r.mem.told[store.Key{Kind: rec.Kind, ID: rec.ID}]
	switch want := (toldUpTo{rec.Incarnation, rec.Journaled}); {
	case told == want:
	case rec.Quiet && told.state == store.StateNone:
	case rec.Journaled == store.StateNone && (told.state == store.StateNone || told.state == store.StateRemoved):
	default:
		r.fault("O9: %s counts as told %s in life %d, and the journal has %s in life %d", rec.ID,
			rec.Journaled.Name(rec.Kind), rec.Incarnation, told.state.Name(rec.Kind), told.incarnation)
	}
}
