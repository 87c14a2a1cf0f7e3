package arbiter

import "github.com/plegd/plegd/store"

// Entity returns what is known of the sandbox or container with this id, as
// [Loop.Pod] has it.
func (l *Loop) Entity(id string) (Entity, bool) {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	return l.view.entity(id)
}

// Entities returns all sandboxes and containers by id.
func (l *Loop) Entities() []Entity {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	all := make([]Entity, 0, len(l.view.recs))
	for _, id := range sortedKeys(l.view.recs) {
		if e, ok := l.view.entity(id); ok {
			all = append(all, e)
		}
	}
	return all
}

// entity composes one entity; the caller holds the lock. Provisional ones are
// not shown (O5).
func (v *view) entity(id string) (Entity, bool) {
	r := v.recs[id]
	if r == nil || r.Provisional {
		return Entity{}, false
	}
	e := Entity{Record: r, Restored: !v.seen[id], Err: v.faults[id]}
	if a := v.asks[id]; a != nil {
		e.Asked = a.Why
	}
	return e, true
}

// Disputed reports whether the state itself is in question: something has
// contradicted it, and no call has settled yet which is right.
func (e *Entity) Disputed() bool {
	return e.Asked&(store.ReasonContradict|store.ReasonRegress|store.ReasonRemoval) != 0
}
