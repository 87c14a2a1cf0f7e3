package arbiter

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/plegd/plegd/store"
)

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
