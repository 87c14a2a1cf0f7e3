package arbiter

import "github.com/plegd/plegd/store"

// truth is the omniscient model that the core is compared with: what sandboxes and containers there
// really are, and how they go on. It knows no ticks, no rules and no agent.
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

// advance takes a thing one state further, by how to a failed start, an exit code or its removal.
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

// remove takes a thing away; with a sandbox sometimes its containers, of which some runtimes then say
// nothing.
func (w *truth) remove(x thing, how int) []transition {
	delete(w.things, x.id)
	if x.kind == store.KindSandbox {
		for _, c := range w.all(store.KindContainer, x.id) {
			if how%2 == 0 {
				delete(w.things, c.id)
			}
		}
	}
	return []transition{{EventDeleted, x.id}}
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

// snapshot is the truth as it is now, for who is told of it later.
func (w *truth) snapshot() *truth {
	d := &truth{things: make(map[string]thing, len(w.things)), made: w.made, room: w.room}
	for id, x := range w.things {
		d.things[id] = x
	}
	return d
}
