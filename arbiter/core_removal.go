package arbiter

import (
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// witness is a call that missed an entity: a list without it, or NotFound.
type witness struct {
	sent, answered timestamps.Tick
	mono           int64 // of the answer, or of the end of the list
	source         timestamps.Provenance
	weak           bool // the runtime may be half loaded, or the whole list wrong
}

// deletedClaimed takes a DELETED event: one witness, if nothing later shows
// that the entity exists (O4). So it costs one look before it is told.
func (c *Core) deletedClaimed(s *step, e *entity, received timestamps.Tick) {
	e.deleted = max(e.deleted, received)
	e.viaIfNone(store.StateRemoved, timestamps.FromStream)
	if e.deletedStands() && e.absentStands() && !e.absent.weak {
		c.remove(s, e)
		return
	}
	c.want(s, e.rec.ID, store.ReasonRemoval, received)
}

// missed takes a call that missed the entity. It is a witness only if it was
// sent after everything that shows the entity to exist; two calls count as two
// only if the second was sent after the first was answered, and, where either
// is weak, at least a base period later. end is the monotonic time, ns, at which
// the list that the call is part of was complete: what sandboxes and containers
// lack together is then also settled together.
func (c *Core) missed(s *step, e *entity, call Call, end int64, weak bool) {
	w := witness{sent: call.Sent.Tick, answered: call.Answered.Tick, mono: end, source: s.source, weak: weak}
	if w.sent <= e.rec.Known {
		return
	}
	e.viaIfNone(store.StateRemoved, s.source)
	switch {
	case e.deletedStands() && !weak:
		c.remove(s, e)
	case !e.absentStands():
		e.absent = w
		c.want(s, e.rec.ID, store.ReasonRemoval, call.Answered.Tick)
	case w.sent > e.absent.answered && (!weak && !e.absent.weak || call.Sent.Mono-e.absent.mono >= c.limits.BasePeriod):
		c.remove(s, e)
	}
}

// deletedStands reports whether a DELETED was received after everything that
// shows the entity to exist. Its own payload doesn't count: containerd sends a
// sandbox's DELETED before the sandbox leaves its store.
func (e *entity) deletedStands() bool { return e.deleted != 0 && e.deleted >= e.rec.Known }

// absentStands reports whether a call that missed the entity was sent after
// everything that shows it to exist.
func (e *entity) absentStands() bool { return e.absent.sent > e.rec.Known }

// removalPending reports whether one witness stands.
func (e *entity) removalPending() bool { return e.deletedStands() || e.absentStands() }

// remove turns the entity into a tombstone. It is journaled by
// finishRemovals, containers before sandboxes.
func (c *Core) remove(s *step, e *entity) {
	if e.rec.State == store.StateRemoved {
		return
	}
	before := e.rec.State
	e.rec.State = store.StateRemoved
	e.rec.Disputes = 0 // they were about the state that it leaves
	e.rec.Removed, e.rec.RemovedAt = s.now.Stamp.Tick, s.now.Running
	s.gone = append(s.gone, e.rec.ID)
	if s.source != timestamps.FromStream {
		c.markMissing(s, e, before)
	}
}

// finishRemovals journals and stores the removals of this step.
func (c *Core) finishRemovals(s *step) {
	for _, kind := range [...]store.Kind{store.KindContainer, store.KindSandbox} {
		for _, id := range s.gone {
			e := c.ents[id]
			if e == nil || e.rec.Kind != kind {
				continue
			}
			c.bury(s, e)
		}
	}
}

// bury moves a removed entity to the tombstones.
func (c *Core) bury(s *step, e *entity) {
	if e.rec.Provisional {
		// Confirmed gone: what was proved of it is told, unless it may have
		// been told before and forgotten (O5, O6).
		e.rec.Provisional = false
		if e.rec.Quiet {
			e.rec.Journaled = store.StateRemoved
		}
	}
	c.tell(s, e)
	c.amend(s, e)
	c.removalWasTold(s, &e.rec, e.heard)
	id := e.rec.ID
	c.sum -= e.sum
	delete(c.ents, id)
	c.unindex(&e.rec, placeOf(&e.rec))
	c.dropAsk(s, id)
	if e.fault != "" {
		c.setFault(s, e, "")
	}
	if e.pub != nil {
		s.out.Changes.Gone = append(s.out.Changes.Gone, store.Key{Kind: e.rec.Kind, ID: id})
	}
	c.setTombstone(s, &e.rec)
	c.tombOrder = append(c.tombOrder, id)
}

func (c *Core) setTombstone(s *step, r *store.Record) {
	t := *r
	c.putTombstone(&t)
	s.out.Changes.Tombstones = append(s.out.Changes.Tombstones, &t)
}
