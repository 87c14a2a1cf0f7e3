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
	kind  store.Kind
	state store.State
	mono  int64  // of the answer that showed it
	list  uint64 // full lists completed by then
}

// markMissing notes a change that the stream should have told.
func (c *Core) markMissing(s *step, e *entity) {
	// Only a change that happened between two lists under one and the same
	// stream is one that the stream must have told.
	if c.stream != StreamUp || c.lists == 0 || c.listBefore(s) <= c.upSince {
		return
	}
	r := &e.rec
	if r.Provisional || e.heard >= r.State || c.neverSent(r) {
		return
	}
	c.missing[r.ID] = missMark{kind: r.Kind, state: r.State, mono: s.at.Mono, list: c.lists}
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
func (c *Core) eventCame(id string, state store.State) {
	if m, ok := c.missing[id]; ok && state >= m.state {
		delete(c.missing, id)
	}
}

// judgeMissing turns marks whose time is over into misses. It runs at the end
// of each full list.
func (c *Core) judgeMissing(s *step, mono int64) {
	for _, id := range sortedKeys(c.missing) {
		if m := c.missing[id]; c.lists > m.list && mono-m.mono >= missAfter {
			s.out.Misses = append(s.out.Misses, Miss{Key: store.Key{Kind: m.kind, ID: id}, State: m.state})
			delete(c.missing, id)
		}
	}
}

// neverSent is what runtimes are known not to send events for.
func (c *Core) neverSent(r *store.Record) bool {
	switch {
	case r.Kind == store.KindContainer && r.State == store.StateDown && !r.Started:
		return true // a failed start: exited with code 128, no STARTED, no STOPPED
	case c.runtime != "cri-o":
		return false
	case r.Kind == store.KindSandbox:
		return r.State == store.StateCreated || r.State == store.StateRemoved
	default:
		return r.State == store.StateRemoved // removed with its sandbox
	}
}
