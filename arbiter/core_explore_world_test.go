package arbiter

import (
	"github.com/plegd/plegd/store"
)

// smallWorld is a runtime with at most four sandboxes and containers, and what
// may go wrong in it. TestExploreSmallWorlds goes through all that can happen.
type smallWorld struct {
	name   string
	limits Limits
	things []thing // what is the same at all times: ids, times, exit, address
	moves  []bool  // of each: whether it changes
	at     version // in the beginning
	known  bool    // the agent has listed and inspected it already
	faults int     // how many faults, of different kinds, may come together
	steady bool    // nothing wrong is said of what doesn't change
	twice  bool    // the one wrong answer may come again, and be believed (O3, O4)
	calls  int     // how many calls may be on their way at once
	late   int     // how many events may be on their way; of more, one is lost

	share int // of the time that there is

	answers [4][phases][2]*Item              // what is said of a thing: in short, in full
	altered [4][alterations][phases][2]*Item // and by mistake
	asThey  map[version]*truth               // for comparing
}

// phase is where a thing really stands. What is gone remembers how far it was.
type phase uint8

const (
	unborn phase = iota
	made
	up
	down
	failed // exited without having run
	goneMade
	goneRan
	goneFailed
	phases
)

func (p phase) exists() bool  { return p >= made && p <= failed }
func (p phase) gone() bool    { return p >= goneMade }
func (p phase) started() bool { return p == up || p == down || p == goneRan }
func (p phase) ended() bool   { return p == down || p == failed || p.gone() }

// lastSeen is the phase in which a thing was before it was removed.
func (p phase) lastSeen() phase {
	switch p {
	case goneMade:
		return made
	case goneFailed:
		return failed
	case goneRan:
		return down
	default:
		return p
	}
}

// removedFrom is where a thing is after its removal.
func (p phase) removedFrom() phase {
	switch p {
	case made:
		return goneMade
	case failed:
		return goneFailed
	default:
		return goneRan
	}
}

// version is a state of all things: four bits for each.
type version uint16

func (v version) of(slot int) phase { return phase(v >> (4 * slot) & 15) }

func (v version) with(slot int, p phase) version {
	return v&^(15<<(4*slot)) | version(p)<<(4*slot)
}

// alteration is one way in which an answer can be wrong about one thing.
type alteration uint8

const (
	unaltered alteration = iota
	missing              // not listed, NotFound
	asMade               // a container in state CREATED
	asExited             // a container in state EXITED, without code and times
	asReady              // a sandbox in state READY
	asGhost              // as it was before its removal
	asUnknown            // in a state that says nothing
	alterations
)

// prepare makes what the runtime can say, once.
func (w *smallWorld) prepare() *smallWorld {
	w.asThey = map[version]*truth{}
	for i := range w.things {
		for p := made; p < phases; p++ {
			x := w.thingAt(i, p.lastSeen())
			w.answers[i][p] = bothWays(x, func(*Item) {})
			for a := missing; a < alterations; a++ {
				w.altered[i][a][p] = bothWays(x, func(it *Item) { alter(it, a) })
			}
		}
	}
	return w
}

func bothWays(x thing, change func(*Item)) [2]*Item {
	short, full := x.listed(), x.status()
	change(&short)
	change(full)
	return [2]*Item{&short, full}
}

func alter(it *Item, a alteration) {
	switch a {
	case asMade:
		it.State, it.StartedAt, it.Exit = criContainerCreated, 0, store.Exit{}
	case asExited:
		it.State = criContainerExited
	case asReady:
		it.State = criSandboxReady
	case asUnknown:
		it.State = 3
		if it.Kind == store.KindSandbox {
			it.State = 5
		}
	default:
		return
	}
	it.Exit, it.StartedAt, it.IPs = store.Exit{}, 0, nil
}

// thingAt is a thing as it is in a phase in which it exists.
func (w *smallWorld) thingAt(slot int, p phase) thing {
	x := w.things[slot]
	switch p {
	case made:
		x.state, x.startedAt, x.exit = store.StateCreated, 0, store.Exit{}
	case up:
		x.state, x.exit = store.StateUp, store.Exit{}
	case failed:
		x.state, x.startedAt = store.StateDown, 0
		x.exit = store.Exit{Code: 128, FinishedAt: x.exit.FinishedAt, Reason: "StartError"}
	default:
		x.state = store.StateDown
	}
	if p != up {
		x.ip = ""
	}
	return x
}

// truth is the version as the dumb model has it.
func (w *smallWorld) truth(v version) *truth {
	t := &truth{things: map[string]thing{}}
	for i := range w.things {
		if p := v.of(i); p.exists() {
			t.things[w.things[i].id] = w.thingAt(i, p)
		}
	}
	return t
}

func (w *smallWorld) slot(id string) int {
	for i := range w.things {
		if w.things[i].id == id {
			return i
		}
	}
	return -1
}

// next are the phases that a thing can go to.
func (w *smallWorld) next(slot int, v version) []phase {
	p := v.of(slot)
	if !w.moves[slot] || w.things[slot].kind == store.KindContainer && p == unborn && v.of(w.slot(w.things[slot].sandbox)) != up {
		return nil
	}
	if w.things[slot].kind == store.KindSandbox {
		return sandboxMoves[p]
	}
	return containerMoves[p]
}

var (
	sandboxMoves   = [phases][]phase{unborn: {up}, up: {down}, down: {goneRan}}
	containerMoves = [phases][]phase{unborn: {made}, made: {up, failed, goneMade}, up: {down}, down: {goneRan}, failed: {goneFailed}}
)

// moved is the version after a thing went to a phase. A sandbox takes its
// containers with it.
func (w *smallWorld) moved(v version, slot int, to phase) version {
	v = v.with(slot, to)
	if w.things[slot].kind == store.KindSandbox && to.gone() {
		for i := range w.things {
			if i != slot && w.things[i].sandbox == w.things[slot].id && v.of(i).exists() {
				v = v.with(i, v.of(i).removedFrom())
			}
		}
	}
	return v
}

// told are the events that a runtime sends when a thing has come to a phase.
func (w *smallWorld) told(slot int, p phase) []EventKind {
	switch {
	case p == up && w.things[slot].kind == store.KindSandbox:
		return []EventKind{EventCreated, EventStarted}
	case p == made:
		return []EventKind{EventCreated}
	case p == up:
		return []EventKind{EventStarted}
	case p == down:
		return []EventKind{EventStopped}
	case p.gone():
		return []EventKind{EventDeleted}
	default: // a failed start is not told
		return nil
	}
}

// mask has the bits of the things of a kind, of one sandbox if that is given.
func (w *smallWorld) mask(k store.Kind, sandbox string) version {
	var m version
	for i := range w.things {
		if w.things[i].kind == k && (sandbox == "" || w.things[i].sandbox == sandbox) {
			m = m.with(i, 15)
		}
	}
	return m
}

// sight is what an answer says: the world at a time, and one thing of it by
// mistake.
type sight struct {
	v    version
	slot uint8
	what alteration
}

// say returns what a sight shows of a thing, nil if nothing.
func (w *smallWorld) say(slot int, s sight, full int) *Item {
	p := s.v.of(slot)
	if s.what != unaltered && int(s.slot) == slot {
		if s.what == missing {
			return nil
		}
		return w.altered[slot][s.what][p][full]
	}
	if !p.exists() {
		return nil
	}
	return w.answers[slot][p][full]
}

// list appends what a list answers.
func (w *smallWorld) list(items []Item, k store.Kind, sandbox string, s sight, full int) []Item {
	for i := range w.things {
		if w.things[i].kind != k || sandbox != "" && w.things[i].sandbox != sandbox {
			continue
		}
		if it := w.say(i, s, full); it != nil {
			items = append(items, *it)
		}
	}
	return items
}

// trusted reports whether nothing wrong is ever said of a thing.
func (w *smallWorld) trusted(slot int) bool { return w.steady && !w.moves[slot] }

// lies are the ways in which an answer can be wrong about a thing so that the
// rules promise to hold out. A state further than the true one is believed at
// the first word, but for an exit without its code: rule O1 has it so.
func (w *smallWorld) lies(slot int, p phase) []alteration {
	switch {
	case p == unborn:
		return nil
	case w.twice && p.exists() && w.things[slot].kind == store.KindContainer && p != made:
		return []alteration{missing, asMade}
	case w.twice && p == made: // exited without a code is believed twice, and promised nothing
		return []alteration{missing}
	case p.gone():
		return []alteration{asGhost}
	case w.things[slot].kind == store.KindSandbox && p == up:
		return []alteration{missing}
	case w.things[slot].kind == store.KindSandbox:
		return []alteration{missing, asReady}
	case p == made:
		return []alteration{missing, asExited}
	case p == up:
		return []alteration{missing, asMade, asExited}
	default:
		return []alteration{missing, asMade}
	}
}
