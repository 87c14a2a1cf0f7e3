package arbiter

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/plegd/plegd/store"
)

// truth is the dumb model: what sandboxes and containers there are, and no
// more. A runtime that tells the truth answers from it.
type truth struct {
	things map[string]thing
	made   int // how many ids were given out
	room   int // for how many things more than a few
}

// thing is one sandbox or container as it really is.
type thing struct {
	kind      store.Kind
	id        string
	sandbox   string
	pod       string
	attempt   uint32
	state     store.State // created (containers only), up, down
	createdAt int64
	startedAt int64
	exit      store.Exit
	ip        string
}

// transition is a real change, of which the runtime sends an event.
type transition struct {
	kind EventKind
	id   string
}

// status is the full answer about a thing.
func (x thing) status() *Item {
	it := x.listed()
	it.Full, it.Rest = true, "rest of "+x.id
	it.StartedAt, it.Exit = x.startedAt, x.exit
	if x.ip != "" {
		it.IPs = []string{x.ip}
	}
	return &it
}

// listed is what a list says of a thing.
func (x thing) listed() Item {
	it := Item{Kind: x.kind, ID: x.id, Sandbox: x.sandbox, CreatedAt: x.createdAt}
	it.Identity.Pod = store.PodRef{UID: x.pod, Namespace: "default", Name: x.pod}
	it.Identity.Attempt = x.attempt
	if x.kind == store.KindContainer {
		it.Identity.Name = x.id
	}
	it.State = criOf(x.kind, x.state)
	return it
}

// criOf is the CRI's number for a state.
func criOf(k store.Kind, s store.State) int32 {
	if k == store.KindSandbox {
		return int32(s - store.StateUp)
	}
	return int32(s - store.StateCreated)
}

// all returns the things of one kind, of one sandbox if that is given.
func (w *truth) all(k store.Kind, sandbox string) []thing {
	var list []thing
	for _, id := range sortedKeys(w.things) {
		if x := w.things[id]; x.kind == k && (sandbox == "" || x.sandbox == sandbox) {
			list = append(list, x)
		}
	}
	return list
}

// change makes one real transition, chosen by chance, and returns what the
// runtime says of it on the stream.
func (w *truth) change(t *rapid.T, now int64) []transition {
	sandboxes, containers := w.all(store.KindSandbox, ""), w.all(store.KindContainer, "")
	what := rapid.IntRange(0, 9).Draw(t, "change")
	pick := func(list []thing) thing { return list[rapid.IntRange(0, len(list)-1).Draw(t, "which")] }
	switch {
	case len(sandboxes) == 0 || what == 0 && len(sandboxes) < 3+w.room/2:
		x := thing{kind: store.KindSandbox, id: w.id("S"), state: store.StateUp, createdAt: now}
		x.sandbox = x.id
		x.pod = fmt.Sprintf("U%d", rapid.IntRange(1, 2).Draw(t, "pod"))
		x.attempt = uint32(len(w.things))
		x.ip = "10.0.0." + x.id[1:]
		w.things[x.id] = x
		return []transition{{EventCreated, x.id}, {EventStarted, x.id}}
	case len(containers) == 0 || what <= 2 && len(containers) < 4+w.room:
		s := pick(sandboxes)
		x := thing{kind: store.KindContainer, id: w.id("C"), sandbox: s.id, pod: s.pod, state: store.StateCreated, createdAt: now}
		w.things[x.id] = x
		return []transition{{EventCreated, x.id}}
	case what <= 7:
		return w.advance(pick(containers), now, rapid.IntRange(0, 5).Draw(t, "how"))
	default:
		return w.advance(pick(sandboxes), now, rapid.IntRange(0, 5).Draw(t, "how"))
	}
}

func (w *truth) id(prefix string) string {
	w.made++
	return fmt.Sprintf("%s%d", prefix, w.made)
}

// advance takes a thing one state further.
func (w *truth) advance(x thing, now int64, how int) []transition {
	switch {
	case how == 0 && x.state != store.StateUp || x.state == store.StateDown:
		return w.remove(x, how)
	case x.kind == store.KindSandbox:
		x.state, x.ip = store.StateDown, ""
		w.things[x.id] = x
		return []transition{{EventStopped, x.id}}
	case x.state == store.StateCreated && how == 1: // the start fails: no event
		x.state = store.StateDown
		x.exit = store.Exit{Code: 128, FinishedAt: now, Reason: "StartError"}
		w.things[x.id] = x
		return nil
	case x.state == store.StateCreated:
		x.state, x.startedAt = store.StateUp, now
		w.things[x.id] = x
		return []transition{{EventStarted, x.id}}
	default:
		x.state = store.StateDown
		x.exit = store.Exit{Code: int32(how), FinishedAt: now, Reason: "Error"}
		w.things[x.id] = x
		return []transition{{EventStopped, x.id}}
	}
}

// remove takes a thing away; with a sandbox sometimes its containers, of which
// some runtimes then say nothing.
func (w *truth) remove(x thing, how int) []transition {
	delete(w.things, x.id)
	told := []transition{{EventDeleted, x.id}}
	if x.kind == store.KindSandbox {
		for _, c := range w.all(store.KindContainer, x.id) {
			if how%2 == 0 {
				delete(w.things, c.id)
			}
		}
	}
	return told
}

// snapshot is what a call that is answered now would say.
func (w *truth) snapshot() *truth {
	d := &truth{things: make(map[string]thing, len(w.things)), made: w.made, room: w.room}
	for id, x := range w.things {
		d.things[id] = x
	}
	return d
}

// event is the message that the runtime sends about a transition, with the
// payload as it is now.
func (w *truth) event(tr transition, sandbox string, wall int64) *EventSeen {
	ev := &EventSeen{Type: tr.kind, ID: tr.id, CreatedAt: wall}
	if s, ok := w.things[sandbox]; ok {
		ev.Sandbox = s.status()
	}
	for _, c := range w.all(store.KindContainer, sandbox) {
		ev.Containers = append(ev.Containers, *c.status())
	}
	return ev
}

// differs says how the core's records differ from the truth, "" if they don't.
func (w *truth) differs(c *Core) string {
	for _, id := range sortedKeys(w.things) {
		x, e := w.things[id], c.ents[id]
		switch {
		case e == nil:
			return fmt.Sprintf("%s is not known", id)
		case e.rec.Provisional:
			return fmt.Sprintf("%s is still provisional", id)
		case e.rec.State != x.state:
			return fmt.Sprintf("%s is %s, not %s", id, x.state.Name(x.kind), e.rec.State.Name(x.kind))
		case e.rec.Journaled != x.state:
			return fmt.Sprintf("%s was told to be %s, not %s", id, e.rec.Journaled.Name(x.kind), x.state.Name(x.kind))
		case e.rec.Reported != criOf(x.kind, x.state):
			return fmt.Sprintf("%s is reported in state %d", id, e.rec.Reported)
		case e.rec.StartedAt != x.startedAt:
			return fmt.Sprintf("%s started at %d, not %d", id, x.startedAt, e.rec.StartedAt)
		case e.rec.Exit != x.exit:
			return fmt.Sprintf("%s ended %+v, not %+v", id, x.exit, e.rec.Exit)
		case x.ip != "" && !slices.Equal(e.rec.IPs, []string{x.ip}):
			return fmt.Sprintf("%s has address %s, not %v", id, x.ip, e.rec.IPs)
		case e.rec.Sandbox != x.sandbox || e.rec.Identity.Pod.UID != x.pod:
			return fmt.Sprintf("%s is placed in %s of %s", id, e.rec.Sandbox, e.rec.Identity.Pod.UID)
		}
	}
	for _, id := range sortedKeys(c.ents) {
		if _, ok := w.things[id]; !ok {
			return fmt.Sprintf("%s is gone and still recorded", id)
		}
	}
	if len(c.asks) > 0 {
		return fmt.Sprintf("questions are left: %v", c.asks)
	}
	return ""
}
