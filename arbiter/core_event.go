package arbiter

import (
	"math"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// event applies one message of the stream: what its payload shows, then what
// its type claims.
func (c *Core) event(s *step, ev *EventSeen) {
	s.at, s.source = ev.At, timestamps.FromStream
	anomaly := timestamps.Judge(ev.CreatedAt, ev.At.Wall)
	if anomaly != timestamps.Plausible {
		s.out.Anomalies = append(s.out.Anomalies, anomaly)
	}
	o := observation{span: timestamps.Receipt(ev.At.Tick), source: timestamps.FromStream}
	trusted := anomaly == timestamps.Plausible && c.distrust == 0
	o.new = trusted && !c.setBack.covers(ev.CreatedAt, s.now.Running) && c.lists > 0 && ev.CreatedAt > c.lastList.Wall && ev.CreatedAt > c.horizon.Wall
	o.quiet = !o.new && c.horizon.Tick != 0 && (!trusted || ev.CreatedAt <= c.horizon.Wall)

	if ev.Sandbox != nil {
		c.observe(s, ev.Sandbox, o)
	}
	for i := range ev.Containers {
		c.observe(s, &ev.Containers[i], o)
	}
	if ev.ID == "" {
		s.out.Ignored++
		return
	}
	c.claim(s, ev, o, anomaly == timestamps.Plausible)
}

// claim applies what the type says of the id that the event names (O1).
func (c *Core) claim(s *step, ev *EventSeen, o observation, plausible bool) {
	state := claimed(ev.Type)
	c.eventCame(s, ev.ID, state, ev.At.Tick)
	if c.tombs[ev.ID] != nil {
		return
	}
	e := c.edit(s, ev.ID)
	if e == nil {
		if e = c.introduceClaim(s, ev, o); e == nil {
			return
		}
	}
	r := &e.rec
	if r.Quiet && !o.quiet && state != store.StateNone && state != store.StateDown {
		r.Quiet = false
	}
	e.heard = max(e.heard, state)
	if plausible && state != store.StateNone && e.claimAt[state] == 0 {
		e.claimAt[state] = ev.CreatedAt
	}
	if state != store.StateRemoved {
		r.Known = max(r.Known, o.span.To)
	}
	switch state {
	case store.StateCreated:
		if r.Journaled < store.StateCreated {
			r.Shown |= bit(store.StateCreated)
		}
		e.viaIfNone(store.StateCreated, o.source)
	case store.StateUp:
		r.Shown |= bit(store.StateUp)
		e.proveStarted(o.source)
	case store.StateDown:
		// It proves the start; the end only where a status agrees.
		e.proveStarted(o.source)
		e.viaIfNone(store.StateDown, o.source)
		if r.State < store.StateDown {
			e.stopped = true
			c.want(s, r.ID, store.ReasonContradict, o.span.To)
		}
	case store.StateRemoved:
		c.deletedClaimed(s, e, o.span.To)
	default:
		c.want(s, r.ID, store.ReasonContradict, o.span.To) // a type of the future: look
	}
}

// introduceClaim makes a record for an id of which only the event's type
// speaks. Without a payload not even its kind is known, so it is only asked
// about.
func (c *Core) introduceClaim(s *step, ev *EventSeen, o observation) *entity {
	if ev.Sandbox == nil || ev.Sandbox.ID == "" {
		s.out.Ignored++
		c.want(s, ev.ID, store.ReasonConfirm, o.span.To)
		return nil
	}
	// The payload doesn't list it, so no status has ever shown it: it may be
	// over already, or be no container at all (an exec session's id).
	o.new = false
	if state := claimed(ev.Type); state == store.StateDown || state == store.StateNone {
		o.quiet = true
	}
	it := &Item{
		Kind: store.KindContainer, ID: ev.ID, Sandbox: ev.Sandbox.ID,
		Identity: store.Identity{Pod: ev.Sandbox.Identity.Pod},
	}
	e := c.introduce(s, it, o)
	e.rec.Identity = it.Identity
	e.current = true
	e.rec.Known = o.span.To
	c.adoptPod(s, &e.rec)
	return e
}

// streamChanged notes the stream's state. What is listed after it opened
// covers what it may have missed, so a list is wanted at once; subscribe
// first, list second.
func (c *Core) streamChanged(s *step, in *StreamChanged) {
	s.at = in.At
	if in.State == StreamUp {
		if c.wasUp {
			c.doubt(in.At.Mono)
		}
		c.wasUp = true
		c.upSince = in.At.Tick
		c.wantList(s, in.At.Tick)
	}
	if in.State != c.stream || in.State == StreamUp {
		s.out.Shrink = true
		clear(c.missing) // what the old stream had left to tell can't be told from lost
	}
	if in.State == StreamDown && c.stream == StreamUp {
		c.doubt(in.At.Mono) // the list that this leads to may be the first of a restarted runtime
	}
	c.stream = in.State
}

// doubt makes what lists and inspections lack weak for a while: the runtime
// may have been restarted and be loading its containers one by one (O4).
func (c *Core) doubt(mono int64) {
	c.doubtful = max(c.doubtful, timestamps.AddClamped(mono, doubtAfterReconnect))
}

// clockStepped: the wall clock jumped, so no runtime time can be compared with
// one of the agent's until a list sent from now on has completed (T3), and if it went
// back, none of before with one of after.
func (c *Core) clockStepped(s *step, d int64) {
	s.out.Step = d
	s.out.Shrink = true
	c.distrust = s.now.Stamp.Tick
	if d < 0 {
		before := timestamps.AddClamped(s.now.Stamp.Wall, -max(d, -math.MaxInt64))
		if s.now.Running < c.setBack.until {
			before = max(before, c.setBack.wall)
		}
		c.setBack = setBack{before, timestamps.AddClamped(s.now.Running, setBackKept)}
	}
	c.lastList.Wall = timestamps.AddClamped(c.lastList.Wall, d)
	c.horizon.Wall = timestamps.AddClamped(c.horizon.Wall, d)
	c.wantList(s, s.now.Stamp.Tick)
}
