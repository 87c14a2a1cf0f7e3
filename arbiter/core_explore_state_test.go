package arbiter

import (
	"cmp"
	"maps"
	"slices"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// node is one state of a small world with its agent: the core and its store,
// the truth, what is on its way, and what may still go wrong.
type node struct {
	rig
	own own // to copy into

	truly  version
	calls  []flight // by key
	events []notice // by thing and type
	due    []due    // by key: what the core wants asked and nobody has

	again   lie      // the wrong answer that may come again
	left    int      // how many more faults may come
	used    faultSet // which did
	holding bool     // commits are held back; what a crash leaves is in disk
	doubted int64    // when the new connection was made, monotonic ns

	seen, kept marks4 // what the oracle remembers; as of the last commit
}

// lie is a wrong answer about one thing.
type lie struct {
	slot uint8
	what alteration // unaltered: there was none
}

// own is what a node has for copies, used again and again.
type own struct {
	owner   *owner
	core    *Core
	open    map[timestamps.Tick]bool
	waiting map[ActionKey]Action
	mem     disk
}

// marks4 is what the oracle remembers of each thing.
type marks4 struct {
	lies   [4]uint8 // false witnesses of its removal
	lowers [4]uint8 // answers in an earlier state than the true one, and no true one since
	exit   uint8    // bits: once said to have exited when it had not
	listed uint8    // bits: a full list was sent after it was removed, and completed
	begun  uint8    // bits: its start was told in this incarnation
}

// flight is a call on its way. The runtime reads the answer at some moment
// between the sending and the answering; which one is chosen with the answer,
// so the versions that there were are kept.
type flight struct {
	key    ActionKey
	half   bool // the sandboxes are answered, the containers asked for
	first  Call
	second Call
	boxes  sight // what the sandboxes' answer was
	during versions
	mask   version // what of the world the answer depends on
	about  uint8   // bits: of which things it can speak
	gone   uint8   // of a full list: bits of what was gone when it was sent
}

// notice is an event on its way. Its payload was read at some moment since just
// before the change.
type notice struct {
	slot   uint8
	kind   EventKind
	at     int64 // created_at
	during versions
	mask   version
}

// due is a question that the core wants asked.
type due struct {
	key       ActionKey
	notBefore int64
}

// versions are the states of a part of the world in a stretch of time, in order.
type versions struct {
	n int
	v [12]version
}

func (s *versions) add(v version) {
	if s.n > 0 && s.v[s.n-1] == v {
		return
	}
	s.v[s.n] = v // no thing changes more often than five times
	s.n++
}

func (s *versions) last() version { return s.v[s.n-1] }

// mayLie reports whether an answer may be wrong about a thing in this way.
func (n *node) mayLie(w *smallWorld, l lie) bool {
	if n.may(faultLie) {
		return true
	}
	return w.twice && n.left > 0 && n.again == l
}

// faultSet is a set of kinds of fault.
type faultSet uint16

const (
	faultLie     faultSet = 1 << iota // one wrong answer
	faultUnknown                      // UNKNOWN or a number outside the enum, once
	faultClock                        // the wall clock steps, by an hour
	faultCrash                        // the agent is killed, before or after a commit
	faultAge                          // 20 minutes pass, and tombstones are evicted
	faultFalse                        // STOPPED or DELETED of what has not
	faultRepeat                       // an event comes twice
	faultFail                         // a call fails
	faultDoubt                        // a new connection: the runtime may be half loaded
	faultsAll    = 1<<iota - 1
)

func newNode(w *smallWorld) *node {
	n := &node{rig: *newRig(w.limits), truly: w.at, left: w.faults}
	n.own = own{new(owner), n.core, n.open, n.waiting, n.mem}
	n.held = true // each commit would copy the store; a crash is given its own
	return n
}

// may reports whether one more fault of this kind may come.
func (n *node) may(f faultSet) bool {
	return n.left > 0 && n.used&f == 0
}

func (n *node) spend(f faultSet) {
	n.left--
	n.used |= f
}

// become makes n a copy of m, reusing what n has. m must not be stepped as long
// as n is in use, and no core that lives may share an entity with what n was:
// then an entity that n owns can be nobody else's, and no new owner is needed
// for each copy. If n is only to be looked at and copied, and not stepped, it
// shares the core.
func (n *node) become(m *node, stepped bool) {
	calls, events, asks, own := n.calls, n.events, n.due, n.own
	*n = *m
	n.own = own
	n.calls = append(calls[:0], m.calls...)
	n.events = append(events[:0], m.events...)
	n.due = append(asks[:0], m.due...)
	n.open = refill(own.open, m.open)
	n.mem.events, n.faults = nil, nil
	if !stepped {
		return
	}
	n.core = own.core
	n.core.become(m.core, own.owner)
	n.waiting = refill(own.waiting, m.waiting)
	n.mem.records, n.mem.tombs = refill(own.mem.records, m.mem.records), refill(own.mem.tombs, m.mem.tombs)
	n.mem.asks, n.mem.told = refill(own.mem.asks, m.mem.asks), refill(own.mem.told, m.mem.told)
}

// steps reports whether an action gives the core an input.
func (n *node) steps(a action) bool {
	switch a.kind() {
	case doMove, doSend, doClock, doHold:
		return false
	case doAnswer:
		f := &n.calls[a.who()]
		return f.key.Kind == ActStatus || f.half
	default:
		return true
	}
}

// become makes c a copy of d as Clone would, reusing c's maps.
func (c *Core) become(d *Core, own *owner) {
	old := *c
	*c = *d
	c.owner, c.work = own, old.work
	c.ents, c.tombs, c.revive = refill(old.ents, d.ents), refill(old.tombs, d.tombs), refill(old.revive, d.revive)
	c.asks, c.out = refill(old.asks, d.asks), refill(old.out, d.out)
	c.missing, c.wanted = refill(old.missing, d.missing), refill(old.wanted, d.wanted)
	c.members, c.sandboxes = refillIndex(old.members, d.members), refillIndex(old.sandboxes, d.sandboxes)
	c.tombOrder = append(old.tombOrder[:0], d.tombOrder...)
}

func refill[K comparable, V any](m, from map[K]V) map[K]V {
	if len(m)+len(from) == 0 {
		return m
	}
	clear(m)
	maps.Copy(m, from)
	return m
}

func refillIndex(x, from index) index {
	for key := range x {
		if from[key] == nil {
			delete(x, key)
		}
	}
	for key, ids := range from {
		if x[key] == nil {
			x[key] = map[string]struct{}{}
		}
		refill(x[key], ids)
	}
	return x
}

// take notes what the core wants asked. Full lists can be sent at any time, so
// nothing is noted of them.
func (n *node) take(out *Output) {
	for _, a := range out.Actions {
		if a.Kind == ActList {
			continue
		}
		d := due{a.Key(), a.NotBefore}
		if i, ok := slices.BinarySearchFunc(n.due, d.key, func(d due, k ActionKey) int { return compareKeys(d.key, k) }); ok {
			n.due[i] = d
		} else {
			n.due = slices.Insert(n.due, i, d)
		}
	}
}

func compareKeys(a, b ActionKey) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
}

func (n *node) inFlight(key ActionKey) bool {
	return slices.ContainsFunc(n.calls, func(f flight) bool { return f.key == key })
}

// depart sends a call.
func (n *node) depart(w *smallWorld, key ActionKey) {
	f := flight{key: key, first: Call{Sent: n.send()}}
	if key.Kind == ActStatus {
		f.mask = version(0).with(w.slot(key.ID), 15)
		f.about = 1 << w.slot(key.ID)
	} else {
		f.mask = w.mask(store.KindSandbox, sandboxOf(key))
		for slot := range w.things {
			if key.Kind == ActList || w.things[slot].sandbox == key.ID {
				f.about |= 1 << slot
			}
		}
	}
	f.during.add(n.truly & f.mask)
	if key.Kind == ActList {
		for slot := range w.things {
			if n.truly.of(slot).gone() {
				f.gone |= 1 << slot
			}
		}
	}
	i, _ := slices.BinarySearchFunc(n.calls, key, func(f flight, k ActionKey) int { return compareKeys(f.key, k) })
	n.calls = slices.Insert(n.calls, i, f)
}

// sandboxOf is the sandbox that a look is about, "" for a full list.
func sandboxOf(key ActionKey) string {
	if key.Kind == ActLook {
		return key.ID
	}
	return ""
}

// turn answers a list's sandboxes and asks for its containers.
func (n *node) turn(w *smallWorld, f *flight, s sight) {
	f.first.Answered = n.stamp()
	f.half, f.boxes = true, s
	f.second.Sent = n.send()
	f.mask = w.mask(store.KindContainer, sandboxOf(f.key))
	f.during = versions{}
	f.during.add(n.truly & f.mask)
}

// arrive takes a call off.
func (n *node) arrive(i int) flight {
	f := n.calls[i]
	n.calls = slices.Delete(n.calls, i, i+1)
	return f
}

// move makes a real change, of which the runtime sends events.
func (n *node) move(w *smallWorld, slot int, to phase) {
	before := n.truly
	n.truly = w.moved(before, slot, to)
	for i := range n.calls {
		n.calls[i].during.add(n.truly & n.calls[i].mask)
	}
	for i := range n.events {
		n.events[i].during.add(n.truly & n.events[i].mask)
	}
	for _, kind := range w.told(slot, to) {
		e := notice{slot: uint8(slot), kind: kind, at: n.wall}
		box := w.things[slot].sandbox
		e.mask = w.mask(store.KindContainer, box).with(w.slot(box), 15)
		e.during.add(before & e.mask)
		e.during.add(n.truly & e.mask)
		if len(n.events) == w.late {
			n.events = slices.Delete(n.events, 0, 1) // lost; which one must not depend on times
		}
		i, _ := slices.BinarySearchFunc(n.events, e, func(a, b notice) int {
			return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.kind, b.kind))
		})
		n.events = slices.Insert(n.events, i, e)
	}
}

// hold keeps all that is decided from now on from being committed.
func (n *node) hold() {
	n.commit()
	n.holding, n.kept = true, n.seen
}

// crash kills the agent and starts it again.
func (n *node) crash() Output {
	if n.holding {
		n.seen.begun = n.kept.begun
	} else {
		n.commit()
	}
	n.holding, n.doubted, n.calls, n.due = false, 0, n.calls[:0], n.due[:0]
	out := n.restart()
	n.held = true
	return out
}
