package arbiter

import (
	"slices"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// observation is how an item was learnt.
type observation struct {
	span    timestamps.Span
	source  timestamps.Provenance
	call    bool // an answer to a call, which has a lower bound in time
	inspect bool // an answer to a call for this very entity
	new     bool // may introduce an id that is not known (O5, O6)
	quiet   bool // older than the horizon: journal only if found
}

// answerTo returns how what a call is answered is learnt. What was asked before the last
// full list may be over: that list lacked what is not known (O5).
func (c *Core) answerTo(call Call, source timestamps.Provenance) observation {
	span := call.Span()
	return observation{
		span: span, source: source, call: true,
		new: span.From > max(c.horizon.Tick, c.covered), quiet: span.From <= c.horizon.Tick,
	}
}

// observe applies what one item says of one entity. It returns the entity,
// nil where there is none: a tombstone, or an item that can't be placed.
func (c *Core) observe(s *step, it *Item, o observation) *entity {
	if it.ID == "" || (it.Kind != store.KindSandbox && it.Kind != store.KindContainer) {
		s.out.Ignored++
		return nil
	}
	if t := c.tombs[it.ID]; t != nil {
		if t.Kind == it.Kind || !o.call || o.span.From <= t.Removed || !onlyHeardOf(t) {
			return c.observeTombstone(s, t, it, o)
		}
		c.dropTombstone(s, it.ID)
		c.tombOrder = slices.DeleteFunc(slices.Clone(c.tombOrder), func(id string) bool { return id == it.ID })
	}
	e := c.edit(s, it.ID)
	if e != nil && e.rec.Kind != it.Kind && o.call && o.span.From > e.rec.Known && onlyHeardOf(&e.rec) {
		c.supplant(s, e)
		e = nil
	}
	switch {
	case e == nil:
		e = c.introduce(s, it, o)
	case e.rec.Kind != it.Kind:
		s.out.Ignored++ // ids are never reused, so this is a wrong answer
		return nil
	case e.rec.Provisional && o.new:
		e.rec.Provisional, e.rec.Quiet = false, false
	case e.rec.Quiet && !o.quiet:
		e.rec.Quiet = false
	}
	known := e.rec.Known
	c.absorb(s, e, it, o)
	if o.call && o.span.From > known {
		c.voidExit(e, it, o)
	}
	if o.inspect {
		e.voidStart(it)
	}
	if o.call {
		c.considerLowering(s, e, it, o, known)
	}
	return e
}

// onlyHeardOf reports whether events alone have spoken of an entity: no call
// has ever shown it, so what kind it is may be an event's mistake.
func onlyHeardOf(r *store.Record) bool { return r.Evidence.Reported.Span.From == 0 }

// supplant ends an entity that a call has shown to be something else. It never
// was, so it leaves no tombstone; what was told of it is told to be over.
func (c *Core) supplant(s *step, e *entity) {
	e.rec.State = store.StateRemoved
	if !e.rec.Provisional {
		c.tell(s, e)
	}
	c.sum -= e.sum
	delete(c.ents, e.rec.ID)
	c.unindex(&e.rec, placeOf(&e.rec))
	c.dropAsk(s, e.rec.ID)
	if e.pub != nil {
		s.out.Changes.Gone = append(s.out.Changes.Gone, store.Key{Kind: e.rec.Kind, ID: e.rec.ID})
	}
}

// voidExit takes back an exit that was seen without its code and not yet
// believed, when an answer to a call after everything known shows the
// container alive: what showed it was wrong (O2).
func (c *Core) voidExit(e *entity, it *Item, o observation) {
	r := &e.rec
	shown := rung(it.Kind, it.State)
	if exitUnknown(r) && r.State < store.StateDown && (shown == store.StateCreated || shown == store.StateUp) {
		r.ExitSeen = false
		if o.inspect {
			r.Disputes = min(r.Disputes+1, maxDisputes)
		}
		r.Shown &^= bit(store.StateDown)
		e.via[store.StateDown] = timestamps.FromUnknown
	}
}

// voidStart takes back a start that nobody was told of, when a status tells the
// whole end and no start: what showed it was wrong (O2). An event that named it
// goes before that.
func (e *entity) voidStart(it *Item) {
	r := &e.rec
	if it.Full && it.StartedAt == 0 && it.Exit.Known() && rung(it.Kind, it.State) == store.StateDown &&
		r.StartedAt == 0 && r.Journaled < store.StateUp && e.heard < store.StateUp {
		r.Started = false
		r.Shown &^= bit(store.StateUp)
		e.via[store.StateUp] = timestamps.FromUnknown
	}
}

// introduce makes the record of an id that was not known. The first rung is
// certain: what was spoken of was created.
func (c *Core) introduce(s *step, it *Item, o observation) *entity {
	e := &entity{rec: store.Record{
		Kind: it.Kind, ID: it.ID, Sandbox: it.Sandbox, Incarnation: 1, State: store.StateCreated,
		Reported: store.ReportedNone, FirstSeen: o.span.To, Provisional: !o.new, Quiet: o.quiet,
	}}
	if it.Kind == store.KindSandbox {
		e.rec.Sandbox = it.ID
	}
	e.via[store.StateCreated] = o.source // whatever shows that it is there shows that it was created
	c.add(s, e)
	return e
}

// absorb merges the fields, raises the state and notes the evidence.
func (c *Core) absorb(s *step, e *entity, it *Item, o observation) {
	r := &e.rec
	before := r.State
	if r.Known == 0 { // just introduced
		before = store.StateNone
	}
	shown := rung(it.Kind, it.State)
	was, pod := placeOf(r), r.Identity.Pod
	merge(r, it, store.Evidence{Span: o.span, State: shown, Full: it.Full})
	if r.Kind == store.KindContainer && r.Sandbox == "" {
		r.Sandbox = it.Sandbox
	}
	if r.Kind == store.KindContainer || r.Identity.Pod != pod {
		c.adoptPod(s, r)
	}
	if placeOf(r) != was {
		c.unindex(r, was)
		c.index(r)
	}

	r.Known = max(r.Known, o.span.To)
	if !e.current {
		e.current = true
		s.out.Confirmed = append(s.out.Confirmed, store.Key{Kind: r.Kind, ID: r.ID})
	}
	if shown != store.StateNone && shown >= r.State || shown == store.StateDown {
		r.Shown |= bit(shown)
		e.viaIfNone(shown, o.source)
	}
	if it.StartedAt > 0 || shown == store.StateUp {
		e.proveStarted(o.source)
	}
	switch {
	case shown == store.StateDown && r.Kind == store.KindContainer && !r.Exit.Known():
		if !r.ExitSeen { // O2: asked for, not yet believed
			r.ExitSeen = true
			r.GaveUp &^= store.ReasonDetails
			c.want(s, r.ID, store.ReasonDetails, o.span.To)
			if !o.inspect {
				c.urge(s, r.ID)
			}
			if c.asks[r.ID].Fails >= exitFails { // asked in vain all along
				climb(r, store.StateDown)
			}
		}
	default:
		climb(r, shown)
	}
	if r.State > before && !o.inspect {
		e.looked = false // what was answered before says nothing of the new state
		c.urge(s, r.ID)
	}
	if r.State > before && o.source != timestamps.FromStream {
		c.markMissing(s, e, before)
	}
}

// proveStarted notes that a container ran or a sandbox was ready, though its
// state may have skipped that rung.
func (e *entity) proveStarted(source timestamps.Provenance) {
	e.rec.Started = true
	e.viaIfNone(store.StateUp, source)
	climb(&e.rec, store.StateUp)
}

func (e *entity) viaIfNone(state store.State, source timestamps.Provenance) {
	if e.via[state] == timestamps.FromUnknown {
		e.via[state] = source
	}
}

// adoptPod gives a container the pod of the sandbox it names, and the
// containers of a sandbox the pod that it turns out to have: a container
// belongs to its sandbox, whatever its own labels say (O7).
func (c *Core) adoptPod(s *step, r *store.Record) {
	if r.Kind == store.KindContainer {
		if pod := c.podOfSandbox(r.Sandbox); pod != (store.PodRef{}) {
			r.Identity.Pod = pod
		}
		return
	}
	if r.Identity.Pod == (store.PodRef{}) {
		return
	}
	var differ []string
	for id := range c.members[r.ID] {
		if m := c.ents[id]; m != nil && m.rec.Identity.Pod != r.Identity.Pod {
			differ = append(differ, id)
		}
	}
	slices.Sort(differ)
	for _, id := range differ {
		c.edit(s, id).rec.Identity.Pod = r.Identity.Pod
	}
}

func (c *Core) podOfSandbox(id string) store.PodRef {
	if e := c.ents[id]; e != nil && e.rec.Kind == store.KindSandbox {
		return e.rec.Identity.Pod
	}
	if t := c.tombs[id]; t != nil && t.Kind == store.KindSandbox {
		return t.Identity.Pod
	}
	return store.PodRef{}
}

// considerLowering handles an answer that shows an earlier state (O3): the
// first is only noted, an inspection sent after that answer confirms it, and
// both count only if sent after everything known.
func (c *Core) considerLowering(s *step, e *entity, it *Item, o observation, known timestamps.Tick) {
	shown := rung(it.Kind, it.State)
	switch {
	case shown == store.StateNone:
	case shown >= e.rec.State || (shown == store.StateDown && exitUnknown(&e.rec)):
		if o.inspect && e.lowered != 0 && o.span.From > e.lowered {
			e.rec.Disputes = min(e.rec.Disputes+1, maxDisputes)
		}
		e.lowered = 0
	case o.span.From <= known:
	case e.lowered == 0:
		if !o.inspect && e.rec.Disputes >= maxDisputes {
			return // the list says so for good, and is wrong
		}
		e.lowered = o.span.To
		c.want(s, e.rec.ID, store.ReasonRegress, o.span.To)
	case o.inspect && o.span.From > e.lowered && !c.loweredLately(s, &e.rec):
		c.lower(s, e, it, o, shown)
	}
}

func (c *Core) loweredLately(s *step, r *store.Record) bool {
	return r.LoweredAt != 0 && s.now.Running-r.LoweredAt < lowerGap
}

// lowerableAt returns the monotonic time, ns, from which the entity may return
// to an earlier state again; 0 for at once.
func (c *Core) lowerableAt(s *step, r *store.Record) int64 {
	if !c.loweredLately(s, r) {
		return 0
	}
	return timestamps.AddClamped(s.now.Stamp.Mono, lowerGap-(s.now.Running-r.LoweredAt))
}

// lower returns to the state shown and takes the confirming answer whole; only
// what it does not know and an earlier state can't contradict, the addresses,
// stays. The next incarnation begins, unless readers were told of no more than
// the state shown: then there is nothing to take back.
func (c *Core) lower(s *step, e *entity, it *Item, o observation, shown store.State) {
	r := &e.rec
	ev := store.Evidence{Span: o.span, State: shown, Full: it.Full}
	next := store.Record{
		Kind: r.Kind, ID: r.ID, Sandbox: r.Sandbox, Identity: r.Identity, Incarnation: r.Incarnation,
		State: shown, Journaled: r.Journaled, Reported: it.State, CreatedAt: r.CreatedAt, IPs: r.IPs,
		HostNetwork: r.HostNetwork, FirstSeen: r.FirstSeen, Known: max(r.Known, o.span.To),
		Shown: bit(shown), Rest: r.Rest, LoweredAt: max(s.now.Running, 1),
		Evidence: store.Evidences{Identity: r.Evidence.Identity, Created: r.Evidence.Created, IPs: r.Evidence.IPs, Rest: r.Evidence.Rest},
	}
	merge(&next, it, ev)
	next.Started = shown == store.StateUp || it.StartedAt > 0
	told, void := r.Journaled > shown, shown+1
	if told {
		next.Incarnation, next.Journaled, void = r.Incarnation+1, shown, store.StateNone
	}
	*r = next
	e.lowered, e.deleted, e.absent, e.stopped, e.heard = 0, 0, witness{}, false, store.StateNone
	clear(e.claimAt[void:])
	clear(e.via[void:])
	c.adoptPod(s, r)
	if told {
		c.journalRegression(s, r)
	}
}
