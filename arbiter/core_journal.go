package arbiter

import (
	"slices"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// tell journals every state that was reached and not yet told, in the order of
// a life, each once (O9). A start waits for its time and a sandbox for its
// address until an inspection has been answered or has failed; an exit waits
// by O2 already. A removal ends all waiting.
func (c *Core) tell(s *step, e *entity) {
	r := &e.rec
	if r.Provisional {
		return
	}
	removed := r.State == store.StateRemoved
	if r.Journaled < store.StateCreated {
		c.journalState(s, e, store.StateCreated)
	}
	if r.Journaled < store.StateUp && r.Started {
		if c.awaitsDetails(e) && !removed {
			return
		}
		c.journalState(s, e, store.StateUp)
	}
	ended := r.State == store.StateDown || removed && (r.Started || r.ExitSeen || r.Exit.Known() || bit(store.StateDown)&r.Shown != 0)
	if r.Journaled < store.StateDown && ended {
		c.journalState(s, e, store.StateDown)
	}
	if r.Journaled < store.StateRemoved && removed {
		c.journalState(s, e, store.StateRemoved)
	}
	c.tellUnknown(s, e)
}

// awaitsDetails reports whether telling that an entity is up should wait for
// the inspection that has been asked for.
func (c *Core) awaitsDetails(e *entity) bool {
	switch {
	case untoldStart(&e.rec) && e.lowered != 0 && e.fault == "":
		return true // an inspection contradicts it, and one more is to decide (O3)
	case e.looked || c.asks[e.rec.ID].Why&(store.ReasonDetails|store.ReasonNoIP) == 0:
		return false
	case e.rec.Kind == store.KindContainer:
		return e.rec.StartedAt == 0
	default:
		return len(e.rec.IPs) == 0 && !e.rec.HostNetwork
	}
}

// untoldStart reports whether a container counts as started by a state alone,
// and nobody was told of it yet.
func untoldStart(r *store.Record) bool {
	return r.Kind == store.KindContainer && r.State == store.StateUp && r.StartedAt == 0 && r.Journaled == store.StateCreated
}

// tellUnknown journals that the runtime reports a state that says nothing,
// once in an incarnation: runtimes flap between UNKNOWN and RUNNING for hours
// (containerd#8647).
func (c *Core) tellUnknown(s *step, e *entity) {
	r := &e.rec
	if r.ToldUnknown || r.State == store.StateRemoved || !c.needs(e, store.ReasonUnknown) {
		return
	}
	r.ToldUnknown = true
	ev := c.newEvent(s, r)
	ev.Type, ev.Change, ev.Changed = changedType(r.Kind), store.ChangeUnknown, []string{store.FieldState}
	ev.State = "unknown"
	ev.Source = s.source
	c.journal(s, ev)
}

// journalState journals that the entity reached a state.
func (c *Core) journalState(s *step, e *entity, state store.State) {
	r := &e.rec
	r.Journaled = state
	ev := c.newEvent(s, r)
	ev.Type = eventType(r.Kind, state)
	ev.Inferred = state != store.StateRemoved && r.Shown&bit(state) == 0
	ev.Source = e.via[state]
	if ev.Source == timestamps.FromUnknown {
		ev.Source = s.source
	}
	ev.OccurredAt = occurred(e, state)
	if state == store.StateDown && r.Kind == store.KindContainer {
		ev.ExitKnown, ev.ExitCode, ev.Reason = r.Exit.Known(), r.Exit.Code, r.Exit.Reason
	}
	c.journal(s, ev)
}

// occurred returns when a state was reached by the runtime's word: the field
// that says so, else the time of the event that named the state, else 0.
func occurred(e *entity, state store.State) int64 {
	r := &e.rec
	switch {
	case state == store.StateCreated && r.CreatedAt != 0:
		return r.CreatedAt
	case state == store.StateUp && r.Kind == store.KindContainer && r.StartedAt != 0:
		return r.StartedAt
	case state == store.StateDown && r.Kind == store.KindContainer && r.Exit.Known():
		return r.Exit.FinishedAt
	}
	return e.claimAt[state]
}

// amend journals fields that became known, or changed, after the event they
// belong to was told.
func (c *Core) amend(s *step, e *entity) {
	if e.pub != nil && e.pub.Incarnation == e.rec.Incarnation && !e.rec.Provisional {
		c.journalAmendment(s, e.pub, &e.rec)
	}
}

func (c *Core) journalAmendment(s *step, old, r *store.Record) {
	var changed []string
	add := func(told store.State, differs bool, field string) {
		if old.Journaled >= told && differs {
			changed = append(changed, field)
		}
	}
	add(store.StateUp, old.StartedAt != r.StartedAt, store.FieldStartedAt)
	add(store.StateUp, !slices.Equal(old.IPs, r.IPs), store.FieldIPs)
	exit := old.Exit.Known() != r.Exit.Known()
	add(store.StateDown, exit || old.Exit.Code != r.Exit.Code, store.FieldExitCode)
	add(store.StateDown, old.Exit.FinishedAt != r.Exit.FinishedAt, store.FieldFinishedAt)
	add(store.StateDown, old.Exit.Reason != r.Exit.Reason, store.FieldReason)
	if changed == nil {
		return
	}
	ev := c.newEvent(s, r)
	ev.Type, ev.Change, ev.Changed, ev.Source = changedType(r.Kind), store.ChangeAmended, changed, s.source
	ev.State = r.State.Name(r.Kind)
	switch {
	case r.Exit.Known():
		ev.ExitKnown, ev.ExitCode, ev.Reason, ev.OccurredAt = true, r.Exit.Code, r.Exit.Reason, r.Exit.FinishedAt
	case r.Kind == store.KindContainer:
		ev.OccurredAt = r.StartedAt
	}
	c.journal(s, ev)
}

// journalRegression journals the return to an earlier state that starts an
// incarnation.
func (c *Core) journalRegression(s *step, r *store.Record) {
	ev := c.newEvent(s, r)
	ev.Type, ev.Change, ev.Changed, ev.Source = changedType(r.Kind), store.ChangeRegressed, []string{store.FieldState}, s.source
	ev.State = r.State.Name(r.Kind)
	if r.Exit.Known() {
		ev.ExitKnown, ev.ExitCode, ev.Reason = true, r.Exit.Code, r.Exit.Reason
	}
	c.journal(s, ev)
}

func changedType(k store.Kind) store.EventType {
	if k == store.KindSandbox {
		return store.SandboxChanged
	}
	return store.ContainerChanged
}

// newEvent fills in what every event of an entity says.
func (c *Core) newEvent(s *step, r *store.Record) store.Event {
	key := r.PodKey()
	ev := store.Event{
		Incarnation: r.Incarnation,
		Pod:         store.EventPod{UID: r.Identity.Pod.UID, Namespace: r.Identity.Pod.Namespace, Name: r.Identity.Pod.Name, IP: c.podIP(key)},
		SandboxID:   r.Sandbox,
		ObservedAt:  s.at.Wall,
		BootID:      c.boot,
		Running:     s.now.Running,
	}
	if r.Kind == store.KindContainer {
		ev.Container = store.EventContainer{ID: r.ID, Name: r.Identity.Name, Attempt: r.Identity.Attempt, Image: r.Identity.Image}
	}
	if sandbox := c.sandboxRecord(r); sandbox != nil {
		ev.Pod.Labels = sandbox.Identity.Labels
	}
	return ev
}

func (c *Core) sandboxRecord(r *store.Record) *store.Record {
	if r.Kind == store.KindSandbox {
		return r
	}
	if e := c.ents[r.Sandbox]; e != nil && e.rec.Kind == store.KindSandbox {
		return &e.rec
	}
	return c.tombs[r.Sandbox]
}

func (c *Core) journal(s *step, ev store.Event) {
	s.out.Changes.Events = append(s.out.Changes.Events, ev)
}
