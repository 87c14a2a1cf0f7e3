package arbiter

import (
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// witnesses is an oracle of O4: it sees what the core sees and says of each removal whether two
// witnesses stood. It decides nothing and remembers everything of one run, so it is simpler than the
// core, and it is written from the rule's text.
type witnesses struct {
	shown     map[string]timestamps.Tick // the end of the last observation that showed it
	against   map[string][]testimony
	connected bool
	streamUp  bool
	wasUp     bool
	failed    bool  // the last full list failed
	doubtful  int64 // monotonic ns until which what is missing proves little
	base      int64 // the base period, ns
}

// testimony is one observation that speaks for a removal: a DELETED, received; a list without it or
// NotFound, sent and answered.
type testimony struct {
	deleted        bool
	sent, answered timestamps.Tick
	sentAt, doneAt int64 // monotonic ns
	weak           bool
}

func newWitnesses(limits Limits) *witnesses {
	base := limits.BasePeriod
	if base == 0 {
		base = DefaultLimits.BasePeriod
	}
	return &witnesses{shown: map[string]timestamps.Tick{}, against: map[string][]testimony{}, base: base}
}

// see takes an input before the core does.
func (w *witnesses) see(c *Core, in Input) {
	switch in := in.(type) {
	case *EventSeen:
		if in.Sandbox != nil {
			w.shows(in.Sandbox.ID, in.At.Tick)
		}
		for i := range in.Containers {
			w.shows(in.Containers[i].ID, in.At.Tick)
		}
		switch {
		case in.Type == EventDeleted:
			w.against[in.ID] = append(w.against[in.ID], testimony{deleted: true, answered: in.At.Tick})
		case in.Sandbox != nil || c.ents[in.ID] != nil: // else it leads to a question, and to no record
			w.shows(in.ID, in.At.Tick)
		}
	case *StatusSeen:
		switch {
		case in.NotFound:
			w.lacks(in.ID, in.Call, in.Call.Answered.Mono, in.Call.Answered.Mono < w.doubtful)
		case in.Item != nil && in.Item.ID == in.ID:
			w.shows(in.ID, in.Call.Answered.Tick)
		}
	case *ListSeen:
		w.list(c, in)
	case *ListFailed:
		w.failed = w.failed || in.Scope.All()
	case *Connected:
		w.doubt(w.connected, in.At.Mono)
		w.connected = true
	case *StreamChanged:
		w.doubt(in.State == StreamUp && w.wasUp || in.State == StreamDown && w.streamUp, in.At.Mono)
		w.streamUp, w.wasUp = in.State == StreamUp, w.wasUp || in.State == StreamUp
	case *PeriodChanged:
		w.base = in.Base
	}
}

func (w *witnesses) list(c *Core, in *ListSeen) {
	end := in.ContainerCall.Answered.Mono
	if in.Scope.All() {
		w.doubt(w.failed, end)
		w.failed = false
	}
	for i := range in.Sandboxes {
		w.shows(in.Sandboxes[i].ID, in.SandboxCall.Answered.Tick)
	}
	for i := range in.Containers {
		w.shows(in.Containers[i].ID, in.ContainerCall.Answered.Tick)
	}
	if in.Scope.PodUID != "" {
		return // proves no absence
	}
	listed, live, lost := listedIn(in), 0, 0
	for _, it := range in.Sandboxes {
		if c.ents[it.ID] == nil {
			live++
		}
	}
	for _, it := range in.Containers {
		if c.ents[it.ID] == nil {
			live++
		}
	}
	for id, e := range c.ents {
		if e.rec.Provisional && !listed[id] {
			continue
		}
		live++
		if !listed[id] && callFor(in, e.rec.Kind).Sent.Tick > w.shown[id] {
			lost++
		}
	}
	mass := in.Scope.All() && live >= 10 && 2*lost >= live
	for id, e := range c.ents {
		if !listed[id] && (in.Scope.All() || e.rec.Sandbox == in.Scope.Sandbox) {
			w.lacks(id, callFor(in, e.rec.Kind), end, mass || end < w.doubtful)
		}
	}
}

func (w *witnesses) shows(id string, at timestamps.Tick) { w.shown[id] = max(w.shown[id], at) }

func (w *witnesses) lacks(id string, call Call, end int64, weak bool) {
	w.against[id] = append(w.against[id], testimony{
		sent: call.Sent.Tick, answered: call.Answered.Tick, sentAt: call.Sent.Mono, doneAt: end, weak: weak,
	})
}

func (w *witnesses) doubt(is bool, mono int64) {
	if is {
		w.doubtful = max(w.doubtful, mono+10*second)
	}
}

// removed says what is wrong with a removal, "" if two witnesses stand.
func (w *witnesses) removed(t *store.Record) string {
	all, shown := w.against[t.ID], w.shown[t.ID]
	delete(w.against, t.ID)
	delete(w.shown, t.ID)
	for _, a := range all {
		for _, b := range all {
			stand := b.sent > shown && (a.deleted && a.answered >= shown || !a.deleted && a.sent > shown)
			apart := a.deleted && !b.weak || !a.deleted && b.sent > a.answered && (!a.weak && !b.weak || b.sentAt-a.doneAt >= w.base)
			if stand && !b.deleted && apart {
				return ""
			}
		}
	}
	return "O4: " + t.ID + " was removed without two witnesses"
}
