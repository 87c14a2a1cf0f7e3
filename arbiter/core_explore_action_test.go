package arbiter

import (
	"github.com/plegd/plegd/store"
)

// action is one thing that can happen in a small world: what, to which thing,
// call or event, with which version of the world, and with what mistake.
type action uint32

type actionKind uint8

const (
	doMove    actionKind = iota // a real change: thing, phase
	doEvent                     // an event is received: event, version
	doRepeat                    // the same, and it will come again
	doSend                      // a call is sent: 0 a full list, else what is due
	doAnswer                    // a call, or half of a list, is answered: call, version
	doFail                      // a call fails
	doFalse                     // an event comes of what did not happen: thing, type
	doClock                     // the wall clock is set: 0 back, 1 forth
	doWait                      // time passes: one of pauses
	doConnect                   // a new connection
	doHold                      // nothing is committed from now on
	doCrash                     // the agent is killed, and started again
)

// versions that only events have
const (
	payloadShort = 0xfe // the payload has lost its containers
	payloadNone  = 0xff // nothing could be looked up
)

func act(k actionKind, who, version int) action {
	return action(k) | action(who)<<8 | action(version)<<16
}

func (a action) but(slot int, what alteration) action {
	return a | action(slot)<<24 | action(what)<<28
}

func (a action) kind() actionKind { return actionKind(a) }
func (a action) who() int         { return int(a >> 8 & 0xff) }
func (a action) version() int     { return int(a >> 16 & 0xff) }

func (a action) sight(v version) sight {
	return sight{v, uint8(a >> 24 & 0xf), alteration(a >> 28)}
}

const (
	waitShort = iota
	waitDoubt
	waitLowering
	waitAge
)

// pauses are how long time may pass, ns: for two lists to be two witnesses, for
// a doubt to end, for another lowering, for a tombstone.
var pauses = [...]int64{2 * second, 12 * second, 62 * second, 1200 * second}

// pace is how much time passes with each action, ns: so little that all of them
// come within every bound of the core, and not nothing.
const pace = second / 1000

// actions appends all that can happen next.
func (n *node) actions(w *smallWorld, list []action) []action {
	for slot := range w.things {
		for _, p := range w.next(slot, n.truly) {
			list = append(list, act(doMove, slot, int(p)))
		}
	}
	for i := range n.events {
		list = n.eventActions(w, i, doEvent, list)
		if n.may(faultRepeat) {
			list = n.eventActions(w, i, doRepeat, list)
		}
	}
	more := len(n.calls) < w.calls
	if more && !n.inFlight(ActionKey{Kind: ActList}) {
		list = append(list, act(doSend, 0, 0))
	}
	for i := range n.due {
		if more && n.due[i].notBefore <= n.mono+pace && !n.inFlight(n.due[i].key) {
			list = append(list, act(doSend, i+1, 0))
		}
	}
	for i := range n.calls {
		list = n.answerActions(w, i, list)
	}
	return n.faultActions(w, list)
}

func (n *node) eventActions(w *smallWorld, i int, k actionKind, list []action) []action {
	e := &n.events[i]
	for v := range e.during.n {
		list = append(list, act(k, i, v))
	}
	list = append(list, act(k, i, payloadShort), act(k, i, payloadNone))
	if k == doEvent && n.may(faultUnknown) {
		if slot := int(e.slot); !w.trusted(slot) && e.during.last().of(slot).exists() {
			list = append(list, act(k, i, e.during.n-1).but(slot, asUnknown))
		}
	}
	return list
}

func (n *node) answerActions(w *smallWorld, i int, list []action) []action {
	f := &n.calls[i]
	for v := range f.during.n {
		list = append(list, act(doAnswer, i, v))
	}
	last := f.during.n - 1
	for slot := range w.things {
		if f.mask.of(slot) == 0 || w.trusted(slot) {
			continue
		}
		p := f.during.last().of(slot)
		for _, what := range w.lies(slot, p) {
			if n.mayLie(w, lie{uint8(slot), what}) {
				list = append(list, act(doAnswer, i, last).but(slot, what))
			}
		}
		if n.may(faultUnknown) && p.exists() {
			list = append(list, act(doAnswer, i, last).but(slot, asUnknown))
		}
	}
	if n.may(faultFail) {
		list = append(list, act(doFail, i, 0))
	}
	return list
}

func (n *node) faultActions(w *smallWorld, list []action) []action {
	if n.may(faultFalse) {
		for slot := range w.things {
			p := n.truly.of(slot)
			if !p.exists() || w.trusted(slot) {
				continue
			}
			list = append(list, act(doFalse, slot, int(EventDeleted)))
			if p == up {
				list = append(list, act(doFalse, slot, int(EventStopped)))
			}
		}
	}
	if n.may(faultClock) {
		list = append(list, act(doClock, 0, 0), act(doClock, 1, 0))
	}
	if n.may(faultAge) {
		list = append(list, act(doWait, waitAge, 0))
	}
	if n.doubted != 0 && n.mono-n.doubted <= pauses[waitDoubt] {
		list = append(list, act(doWait, waitShort, 0), act(doWait, waitDoubt, 0))
	}
	if n.may(faultDoubt) {
		list = append(list, act(doConnect, 0, 0))
	}
	if n.may(faultCrash) {
		list = append(list, act(doHold, 0, 0), act(doCrash, 0, 0))
	} else if n.holding {
		list = append(list, act(doCrash, 0, 0))
	}
	return list
}

// said holds the inputs of a step, which no core keeps.
type said struct {
	list   ListSeen
	status StatusSeen
	event  EventSeen
}

// do makes an action happen, checks what comes of it and returns what breaks
// the promise, "" if nothing does.
func (n *node) do(w *smallWorld, u *said, a action) string {
	n.pass(pace)
	switch a.kind() {
	case doMove:
		n.move(w, a.who(), phase(a.version()))
	case doEvent, doRepeat:
		return n.receive(w, u, a)
	case doSend:
		n.depart(w, n.dueAt(a.who()))
	case doAnswer:
		return n.answer(w, u, a)
	case doFail:
		return n.fail(w, u, a)
	case doFalse:
		return n.falsely(w, u, a)
	case doClock:
		n.spend(faultClock)
		n.wall += [2]int64{-3600 * second, 3600 * second}[a.who()]
	case doWait:
		if a.who() == waitAge {
			n.spend(faultAge)
		}
		return n.elapse(w, pauses[a.who()])
	case doConnect:
		n.spend(faultDoubt)
		n.doubted = n.mono
		return n.input(w, &Connected{At: n.stamp()})
	case doHold:
		n.spend(faultCrash)
		n.hold()
	case doCrash:
		if !n.holding {
			n.spend(faultCrash)
		}
		out := n.crash()
		n.take(&out)
		return n.check(w, &out, nil)
	}
	return ""
}

// input gives the core an input and checks what it decides.
func (n *node) input(w *smallWorld, in Input) string {
	n.mem.events = nil
	n.shown(w, in)
	out := n.step(in)
	n.take(&out)
	return n.check(w, &out, in)
}

// elapse lets time pass and wakes the core as it asked for.
func (n *node) elapse(w *smallWorld, left int64) string {
	for n.wake != 0 && n.wake <= n.mono+left {
		d := max(0, n.wake-n.mono)
		n.pass(d)
		left -= d
		n.wake = 0
		if why := n.input(w, &TimePassed{At: n.stamp()}); why != "" {
			return why
		}
	}
	n.pass(left)
	return ""
}

// dueAt takes what is to be sent off the questions that are due.
func (n *node) dueAt(i int) ActionKey {
	if i == 0 {
		return ActionKey{Kind: ActList}
	}
	d := n.due[i-1]
	n.due = append(n.due[:i-1], n.due[i:]...)
	return d.key
}

// receive delivers an event on its way.
func (n *node) receive(w *smallWorld, u *said, a action) string {
	e := n.events[a.who()]
	if a.kind() == doRepeat {
		n.spend(faultRepeat)
	} else {
		n.events = append(n.events[:a.who()], n.events[a.who()+1:]...)
	}
	s := a.sight(0)
	full := true
	switch v := a.version(); v {
	case payloadNone:
	case payloadShort:
		s.v, full = e.during.last(), false
	default:
		s.v = e.during.v[v]
	}
	if s.what == asUnknown {
		n.spend(faultUnknown)
	}
	n.message(w, u, e.kind, int(e.slot), e.at, s, full)
	return n.input(w, &u.event)
}

// message makes an event.
func (n *node) message(w *smallWorld, u *said, kind EventKind, slot int, at int64, s sight, containers bool) {
	u.event = EventSeen{Type: kind, ID: w.things[slot].id, CreatedAt: at, Containers: u.event.Containers[:0]}
	box := w.things[slot].sandbox
	if it := w.say(w.slot(box), s, 1); it != nil {
		u.event.Sandbox = it
	}
	if containers {
		u.event.Containers = w.list(u.event.Containers, store.KindContainer, box, s, 1)
	}
	u.event.At = n.stamp()
}

// falsely sends an event of what did not happen.
func (n *node) falsely(w *smallWorld, u *said, a action) string {
	n.spend(faultFalse)
	slot := a.who()
	if EventKind(a.version()) == EventDeleted {
		n.witness(slot)
	}
	n.message(w, u, EventKind(a.version()), slot, n.wall, sight{v: n.truly}, true)
	return n.input(w, &u.event)
}

// witness counts a false witness of a removal. Two are believed; what is found
// again after its tombstone is evicted is told from the beginning then.
func (n *node) witness(slot int) {
	n.seen.lies[slot]++
	n.liar = n.liar || n.seen.lies[slot] > 1
}

// shown forgets what spoke for the removal of a thing that the core holds and an
// input shows, and for its return to an earlier state if it shows it in none: only what
// stands after everything known counts (O3, O4).
func (n *node) shown(w *smallWorld, in Input) {
	shows := func(id string, state store.State) {
		e := n.core.ents[id]
		if e == nil {
			return
		}
		slot := w.slot(id)
		n.seen.lies[slot] = 0
		if state >= e.rec.State {
			n.seen.lowers[slot] = 0
		}
	}
	all := func(items []Item) {
		for i := range items {
			shows(items[i].ID, rung(items[i].Kind, items[i].State))
		}
	}
	switch in := in.(type) {
	case *EventSeen:
		if in.Type == EventDeleted { // its own payload takes nothing back
			return
		}
		if in.Sandbox != nil {
			shows(in.Sandbox.ID, rung(in.Sandbox.Kind, in.Sandbox.State))
		}
		all(in.Containers)
		shows(in.ID, claimed(in.Type))
	case *StatusSeen:
		if in.Item != nil {
			shows(in.ID, rung(in.Item.Kind, in.Item.State))
		}
	case *ListSeen:
		all(in.Sandboxes)
		all(in.Containers)
	}
}

// haunt takes an answer for two lies that shows what was removed and forgotten:
// nothing is left to tell it from what is new, so it is told from the beginning.
func (n *node) haunt(w *smallWorld, s sight) {
	if s.what != asGhost {
		return
	}
	x := &w.things[s.slot]
	key := store.Key{Kind: x.kind, ID: x.id}
	if n.recordOf(x.id) == nil && n.mem.told[key].state == store.StateRemoved {
		n.witness(int(s.slot))
		n.witness(int(s.slot))
		n.forget(key)
	}
}

// answer takes a call one phase further.
func (n *node) answer(w *smallWorld, u *said, a action) string {
	f := &n.calls[a.who()]
	s := a.sight(f.during.v[a.version()])
	switch s.what {
	case unaltered:
	case asUnknown:
		n.spend(faultUnknown)
	default:
		n.again = lie{}
		if n.may(faultLie) { // the first time
			n.again = lie{s.slot, s.what}
		}
		n.spend(faultLie)
		switch s.what {
		case missing:
			n.witness(int(s.slot))
		case asExited:
			n.seen.exit |= 1 << s.slot
		case asMade, asReady:
			n.seen.lowers[s.slot]++
		}
	}
	if f.key.Kind != ActStatus && !f.half {
		n.turn(w, f, s)
		return ""
	}
	done := n.arrive(a.who())
	n.haunt(w, s)
	n.haunt(w, done.boxes)
	if done.key.Kind == ActStatus {
		slot := w.slot(done.key.ID)
		done.first.Answered = n.stamp()
		u.status = StatusSeen{ID: done.key.ID, Kind: w.things[slot].kind, Call: done.first, Item: w.say(slot, s, 1)}
		u.status.NotFound = u.status.Item == nil
		return n.input(w, &u.status)
	}
	done.second.Answered = n.stamp()
	scope := Scope{Sandbox: sandboxOf(done.key)}
	u.list = ListSeen{
		Scope: scope, SandboxCall: done.first, ContainerCall: done.second,
		Sandboxes:  w.list(u.list.Sandboxes[:0], store.KindSandbox, scope.Sandbox, done.boxes, 0),
		Containers: w.list(u.list.Containers[:0], store.KindContainer, scope.Sandbox, s, 0),
	}
	if scope.All() {
		n.seen.listed |= done.gone
	}
	return n.input(w, &u.list)
}

// fail ends a call without an answer.
func (n *node) fail(w *smallWorld, u *said, a action) string {
	n.spend(faultFail)
	f := n.arrive(a.who())
	delete(n.open, f.first.Sent.Tick)
	delete(n.open, f.second.Sent.Tick)
	if f.key.Kind == ActStatus {
		f.first.Answered = n.stamp()
		u.status = StatusSeen{ID: f.key.ID, Kind: w.things[w.slot(f.key.ID)].kind, Call: f.first, Err: "internal error"}
		return n.input(w, &u.status)
	}
	return n.input(w, &ListFailed{Scope: Scope{Sandbox: sandboxOf(f.key)}, At: n.stamp(), Err: "failed"})
}
