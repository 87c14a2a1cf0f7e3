package arbiter

import (
	"slices"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// observeTombstone applies what is said of a removed entity. Events bring
// nothing back; they may add what the record never knew. Only an answer to a
// call sent after the removal, confirmed by an inspection sent after that
// answer, revives it (O3, O6).
func (c *Core) observeTombstone(s *step, t *store.Record, it *Item, o observation) *entity {
	if t.Kind != it.Kind {
		s.out.Ignored++
		return nil
	}
	if !o.call {
		c.amendTombstone(s, t, it, o)
		return nil
	}
	first, asked := c.revive[t.ID]
	switch {
	case o.span.From <= t.Removed:
		c.amendTombstone(s, t, it, o)
	case !asked && !o.inspect && t.Disputes >= maxDisputes: // listed for good, though it is gone
	case !asked:
		c.revive[t.ID] = o.span.To
		c.want(s, t.ID, store.ReasonRegress, o.span.To)
	case o.inspect && o.span.From > first && !c.loweredLately(s, t):
		return c.reviveEntity(s, t, it, o)
	}
	return nil
}

// reviveEntity starts the next incarnation of an entity that was taken for
// removed.
func (c *Core) reviveEntity(s *step, t *store.Record, it *Item, o observation) *entity {
	c.dropTombstone(s, t.ID)
	c.tombOrder = slices.DeleteFunc(slices.Clone(c.tombOrder), func(id string) bool { return id == t.ID })
	e := &entity{rec: *t}
	e.rec.Removed, e.rec.RemovedAt = 0, 0
	shown := rung(it.Kind, it.State)
	if shown == store.StateNone {
		shown = store.StateCreated
	}
	c.add(s, e)
	was := placeOf(&e.rec)
	c.lower(s, e, it, o, shown)
	c.unindex(&e.rec, was)
	c.index(&e.rec)
	e.current = true
	s.out.Confirmed = append(s.out.Confirmed, store.Key{Kind: t.Kind, ID: t.ID})
	return e
}

// amendTombstone adds start and exit to a removed container that never had
// them told: a death that the list noticed first has its code on the stream a
// moment later.
func (c *Core) amendTombstone(s *step, t *store.Record, it *Item, o observation) {
	if t.Kind != store.KindContainer {
		return
	}
	r := *t
	ev := store.Evidence{Span: o.span, State: rung(it.Kind, it.State), Full: it.Full}
	if !r.Exit.Known() && it.Exit.Known() {
		r.Exit, r.Evidence.Exit = it.Exit, ev
	}
	if r.StartedAt == 0 && it.StartedAt > 0 {
		r.StartedAt, r.Evidence.Started, r.Started = it.StartedAt, ev, true
	}
	if r.SameContent(t) {
		return
	}
	c.setTombstone(s, &r)
	if !r.Quiet {
		c.journalAmendment(s, t, &r)
	}
}

// evict forgets tombstones that are too old or too many, in order of removal
// and never while a call sent before the removal is in flight. Those too old
// go in groups, so that an idle node does not commit for each.
func (c *Core) evict(s *step) {
	if len(c.tombOrder) == 0 {
		return
	}
	age := func(id string) int64 { return s.now.Running - c.tombs[id].RemovedAt }
	due := age(c.tombOrder[0]) >= c.limits.TombstoneAge+evictSlack
	n := 0
	for _, id := range c.tombOrder {
		t := c.tombs[id]
		expired := due && age(id) >= c.limits.TombstoneAge
		if !expired && len(c.tombs) <= c.limits.Tombstones || !c.forgettable(s, t) {
			break
		}
		c.horizon.Tick = max(c.horizon.Tick, t.Removed)
		// The wall clock may have been wrong at the removal, or may be stepped
		// since; how long ago it was is certain (T3).
		c.horizon.Wall = max(c.horizon.Wall, timestamps.AddClamped(s.now.Stamp.Wall, -age(id)))
		c.dropTombstone(s, id)
		c.dropAsk(s, id)
		delete(c.missing, id) // where no full list is periodic nothing else ends it
		n++
	}
	if n > 0 {
		c.tombOrder = slices.Clone(c.tombOrder[n:])
		// A batch that deletes and puts a key puts it, so what was removed and
		// forgotten in one step must not be put.
		s.out.Changes.Tombstones = slices.DeleteFunc(s.out.Changes.Tombstones, func(t *store.Record) bool { return c.tombs[t.ID] == nil })
	}
	if len(c.tombOrder) > 0 {
		left := max(0, c.limits.TombstoneAge-age(c.tombOrder[0]))
		c.wake(s, timestamps.AddClamped(s.now.Stamp.Mono, left+evictSlack))
	}
}

// dropTombstone takes a tombstone out; the caller sees to tombOrder.
func (c *Core) dropTombstone(s *step, id string) {
	c.takeTombstone(id)
	delete(c.revive, id)
	s.out.Changes.Forgotten = append(s.out.Changes.Forgotten, id)
}

func (c *Core) forgettable(s *step, t *store.Record) bool {
	return s.now.OldestCall == 0 || t.Removed < s.now.OldestCall
}

// wake asks for a step at the time given, or earlier if one was asked for.
func (c *Core) wake(s *step, mono int64) {
	if s.out.Wake == 0 || mono < s.out.Wake {
		s.out.Wake = mono
	}
}
