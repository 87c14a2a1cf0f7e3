package arbiter

import (
	"math"
	"slices"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// tries is how many answers may leave a reason unsettled before it is given up
// for this state; 0 is without limit, because the answer decides whether the
// entity exists.
var tries = map[store.Reason]uint8{
	store.ReasonDetails:    3,
	store.ReasonUnknown:    5,
	store.ReasonNoIP:       5,
	store.ReasonExit255:    3, // the exit file appears within a second (cri-o#9840)
	store.ReasonExit137:    2, // the OOM note follows within a second (containerd#8180)
	store.ReasonContradict: 4,
}

// want puts a reason to inspect into the queue. after is the tick of what gave
// the reason: only a call sent after it can settle it (O8, trace F10).
func (c *Core) want(s *step, id string, why store.Reason, after timestamps.Tick) {
	a, ok := c.asks[id]
	if !ok {
		a = store.Ask{ID: id}
	}
	if e := c.ents[id]; e != nil {
		a.Kind = e.rec.Kind
	} else if t := c.tombs[id]; t != nil {
		a.Kind = t.Kind
	}
	fresh := a.Why&why == 0
	a.Why |= why
	a.Since = max(a.Since, after)
	c.setAsk(s, a, fresh)
}

// asked is an ask that may need an action. A fresh one has a reason that no
// call was tried for yet, so it waits for no back-off.
type asked struct {
	id    string
	fresh bool
}

func (s *step) ask(id string, fresh bool) { s.asked = append(s.asked, asked{id, fresh}) }

// urge makes what is asked about an entity go at once: it has moved on, so what
// was tried in vain says little.
func (c *Core) urge(s *step, id string) {
	if _, ok := c.asks[id]; ok {
		s.ask(id, true)
	}
}

func (c *Core) setAsk(s *step, a store.Ask, fresh bool) {
	s.ask(a.ID, fresh)
	if old, ok := c.asks[a.ID]; ok && old == a {
		return
	}
	c.asks[a.ID] = a
	s.reask(a.ID)
}

func (c *Core) dropAsk(s *step, id string) {
	if _, ok := c.asks[id]; ok {
		delete(c.asks, id)
		s.reask(id)
	}
}

// reask notes that an entry of the queue is to be written.
func (s *step) reask(id string) {
	s.reasked = append(s.reasked, id)
}

// wantNeeded asks for what an entity's record shows to be missing, unless that
// was given up.
func (c *Core) wantNeeded(s *step, e *entity) {
	r := &e.rec
	if r.State == store.StateRemoved {
		return
	}
	have := c.asks[r.ID].Why
	for _, why := range [...]store.Reason{
		store.ReasonConfirm, store.ReasonDetails, store.ReasonUnknown, store.ReasonNoIP, store.ReasonExit255, store.ReasonExit137,
	} {
		if have&why == 0 && r.GaveUp&why == 0 && c.needs(e, why) {
			c.want(s, r.ID, why, s.at.Tick)
		}
	}
}

// needs reports whether a reason still holds.
func (c *Core) needs(e *entity, why store.Reason) bool {
	r := &e.rec
	if r.Provisional && why != store.ReasonConfirm && why != store.ReasonRemoval {
		return false
	}
	switch why {
	case store.ReasonConfirm:
		return r.Provisional
	case store.ReasonDetails:
		return c.needsDetails(r)
	case store.ReasonRegress:
		return e.lowered != 0
	case store.ReasonRemoval:
		return e.removalPending()
	case store.ReasonUnknown:
		return r.Reported != store.ReportedNone && rung(r.Kind, r.Reported) == store.StateNone
	case store.ReasonNoIP:
		return r.Kind == store.KindSandbox && r.State == store.StateUp && len(r.IPs) == 0 && !r.HostNetwork && !r.Evidence.Rest.Span.IsZero()
	case store.ReasonExit255:
		return c.habits.again&why != 0 && r.State == store.StateDown && r.Exit.Known() && r.Exit.Code == 255
	case store.ReasonExit137:
		return c.habits.again&why != 0 && r.State == store.StateDown && r.Exit.Known() && r.Exit.Code == 137 && r.Exit.Reason != "OOMKilled"
	case store.ReasonContradict:
		return e.stopped && r.State < store.StateDown
	default:
		return false
	}
}

// needsDetails reports whether the record lacks what only a status says.
func (c *Core) needsDetails(r *store.Record) bool {
	switch {
	case r.Evidence.Rest.Span.IsZero(): // no status was ever seen
		return true
	case r.Kind == store.KindContainer:
		return r.Started && r.StartedAt == 0 || exitUnknown(r)
	default:
		return false
	}
}

// answered settles what an answered call can settle: only reasons older than
// its sending. A list settles what it leaves nothing to ask about; the rest it
// leaves to inspections.
func (c *Core) answered(s *step, id string, span timestamps.Span, inspect bool) {
	a, ok := c.asks[id]
	if !ok {
		return
	}
	s.ask(id, false)
	if span.From <= a.Since {
		return
	}
	if inspect {
		a.Fails = 0
	}
	e := c.edit(s, id)
	for i := range store.Reasons {
		why := store.Reason(1 << i)
		switch {
		case a.Why&why == 0:
		case e == nil && !inspect:
		case e == nil:
			if _, reviving := c.revive[id]; !reviving {
				a.Why &^= why
			}
		case !c.needs(e, why):
			a.Why, a.Tries[i] = a.Why&^why, 0
		case inspect:
			a.Tries[i] = saturate(a.Tries[i])
			if most := tries[why]; most != 0 && a.Tries[i] >= most {
				a.Why, a.Tries[i] = a.Why&^why, 0
				e.rec.GaveUp |= why
			}
		}
	}
	if a.Why == 0 {
		c.dropAsk(s, id)
		return
	}
	c.setAsk(s, a, false)
}

// askFailed counts a call that failed, unless it went sooner than those before it
// had earned: else what moves on while its inspections fail would wait longer than
// they have been failing. It never takes an entry from the queue.
func (c *Core) askFailed(s *step, id string, call outstanding) {
	if a, ok := c.asks[id]; ok {
		if call.attempt >= int(a.Fails) {
			a.Fails = saturate(a.Fails)
		}
		c.setAsk(s, a, false)
	}
}

func saturate(n uint8) uint8 { return min(n, math.MaxUint8-1) + 1 }

// emit stores the asks that changed and turns what is asked into actions, of
// which there is at most one of a kind and id outstanding.
func (c *Core) emit(s *step) {
	slices.Sort(s.reasked)
	for _, id := range slices.Compact(s.reasked) {
		if a, ok := c.asks[id]; ok {
			s.out.Changes.Asks = append(s.out.Changes.Asks, &a)
		} else {
			s.out.Changes.Answered = append(s.out.Changes.Answered, id)
		}
	}
	for _, q := range s.asked {
		if a, ok := c.asks[q.id]; ok {
			c.act(s, c.actionFor(s, a, q.fresh), q.fresh)
		}
	}
}

// attempt returns how many fruitless answers the least often asked reason has
// behind it: one call answers all reasons, so the freshest sets the pace.
func attempt(a store.Ask, r *store.Record) int {
	least := math.MaxInt
	for i := range store.Reasons {
		why := store.Reason(1 << i)
		if a.Why&why == 0 {
			continue
		}
		n := int(a.Tries[i])
		if why&(store.ReasonUnknown|store.ReasonNoIP|store.ReasonExit255|store.ReasonExit137) != 0 {
			n++ // just answered so: not again at once
		}
		if why == store.ReasonRegress || why == store.ReasonDetails && exitUnknown(r) {
			n = max(n, int(r.Disputes)) // so far the list was wrong each time
		}
		least = min(least, n)
	}
	return least
}

// actionFor chooses the call that settles an ask: a look at the sandbox where
// a removal is in question, since that settles the whole pod, else a status. A
// fresh reason doesn't pay for calls that failed before it came up.
func (c *Core) actionFor(s *step, a store.Ask, fresh bool) Action {
	act := Action{Kind: ActStatus, Entity: a.Kind, ID: a.ID, Attempt: int(a.Fails)}
	if fresh {
		act.Attempt = 0
	}
	e := c.ents[a.ID]
	if e == nil {
		t := c.tombs[a.ID]
		act.PodKey, act.Unknown = store.PodKeyOfSandbox(a.ID), t == nil
		if t != nil {
			act.NotBefore = c.lowerableAt(s, t)
			act.Attempt = max(act.Attempt, attempt(a, t))
		}
		return act
	}
	act.PodKey, act.Unknown = e.rec.PodKey(), e.rec.Provisional
	if a.Why&store.ReasonRemoval != 0 {
		if e.absentStands() && (e.absent.weak || s.now.Stamp.Mono < c.doubtful) { // sooner it would not count
			act.NotBefore = timestamps.AddClamped(e.absent.mono, c.limits.BasePeriod)
		}
		switch {
		case e.bulk:
			act.Kind, act.ID, act.PodKey, act.Attempt = ActList, "", "", c.listFails
		case e.rec.Sandbox != "":
			act.Kind, act.ID = ActLook, e.rec.Sandbox
		}
		return act
	}
	act.Attempt = max(act.Attempt, attempt(a, &e.rec))
	if e.lowered != 0 {
		act.NotBefore = c.lowerableAt(s, &e.rec)
	}
	return act
}
