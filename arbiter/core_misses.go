package arbiter

import (
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// missMark is a change that a list or an inspection showed first, though the
// stream was up. It is a miss only if its event has not come within missAfter
// and by the end of the next relist, whichever is later; else churn would
// never let the period stretch.
type missMark struct {
	kind    store.Kind
	state   store.State
	sandbox string
	running bool            // of a removal: it was up until then, as far as was known
	started bool            // it was up at some time
	heard   store.State     // the furthest state that an event has named
	mono    int64           // of the answer that showed it
	tick    timestamps.Tick // likewise
	list    uint64          // full lists completed by then
}

// markMissing notes a change that the stream should have told. before is the
// state that the entity had.
func (c *Core) markMissing(s *step, e *entity, before store.State) {
	// Only a change that happened between two lists under one and the same
	// stream is one that the stream must have told.
	if c.stream != StreamUp || c.lists == 0 || c.listBefore(s) <= c.upSince {
		return
	}
	r := &e.rec
	if r.Provisional || e.heard >= r.State {
		return
	}
	c.missing[r.ID] = missMark{
		kind: r.Kind, state: r.State, sandbox: r.Sandbox,
		running: r.Started && before < store.StateDown && !r.ExitSeen, started: r.Started, heard: e.heard,
		mono: s.at.Mono, tick: s.at.Tick, list: c.lists,
	}
}

// listBefore returns when the full list was sent that did not yet show the
// present change: the last one, while a full list is being applied, else the
// one before, since it was the last that led to asking.
func (c *Core) listBefore(s *step) timestamps.Tick {
	if s.full {
		return c.lastList.Tick
	}
	return c.prevList
}

// eventCame takes the mark off: the stream did tell.
func (c *Core) eventCame(s *step, id string, state store.State, at timestamps.Tick) {
	c.lastEvent = at
	if m, ok := c.missing[id]; ok {
		if state >= m.state {
			delete(c.missing, id)
		} else {
			m.heard = max(m.heard, state)
			c.missing[id] = m
		}
	}
	if state == store.StateNone {
		return
	}
	switch e, t := c.ents[id], c.tombs[id]; {
	case e != nil:
		c.learnSent(s, kindOfChange(e.rec.Kind, state, true))
	case t != nil:
		c.learnSent(s, kindOfChange(t.Kind, state, true))
		c.removalWasTold(s, t, state)
	}
}

// removalWasTold notes that a container's DELETED came although its sandbox is
// gone too.
func (c *Core) removalWasTold(s *step, r *store.Record, heard store.State) {
	if r.Kind == store.KindContainer && heard == store.StateRemoved && c.sandboxGone(r.Sandbox) {
		c.learnSent(s, MissContainerDropped)
	}
}

// sandboxGone reports whether a sandbox is removed, or is by this step.
func (c *Core) sandboxGone(id string) bool {
	e := c.ents[id]
	return e == nil || e.rec.State == store.StateRemoved
}

// judgeMissing turns marks whose time is over into misses. It runs at the end
// of each full list.
func (c *Core) judgeMissing(s *step, mono int64) {
	for _, id := range sortedKeys(c.missing) {
		m := c.missing[id]
		if c.lists <= m.list || mono-m.mono < missAfter {
			continue
		}
		delete(c.missing, id)
		kind := c.judge(m)
		if c.excused(kind) {
			continue
		}
		s.out.Misses = append(s.out.Misses, Miss{Key: store.Key{Kind: m.kind, ID: id}, State: m.state, Kind: kind})
		c.learnMiss(s, kind, c.lastEvent > m.tick)
	}
}

// judge says of what kind a missing event is. Of a removal that is never told,
// the end before it must have been: a stream that is broken must not be able to
// hide behind a habit.
func (c *Core) judge(m missMark) MissKind {
	kind := kindOfChange(m.kind, m.state, m.started)
	if kind == MissContainerRemoved && c.sandboxGone(m.sandbox) {
		kind = MissContainerDropped
	}
	if m.state == store.StateRemoved && c.excused(kind) && m.running && m.heard < store.StateDown {
		return kindOfChange(m.kind, store.StateDown, true)
	}
	return kind
}

// kindOfChange names the change to a state.
func kindOfChange(k store.Kind, state store.State, started bool) MissKind {
	if k == store.KindSandbox {
		return MissSandboxCreated + MissKind(state-store.StateCreated)
	}
	switch state {
	case store.StateCreated:
		return MissContainerCreated
	case store.StateUp:
		return MissContainerRunning
	case store.StateDown:
		if !started {
			return MissContainerFailed
		}
		return MissContainerExited
	default:
		return MissContainerRemoved
	}
}
