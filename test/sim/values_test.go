package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// values compares what was told of a step with that step.
func (j *judging) values(e *entity, ev told, tr simruntime.Transition) string {
	switch {
	case ev.Type == store.ContainerDied && ev.ExitKnown && ev.ExitCode != tr.ExitCode:
		return fmt.Sprintf("the code is %d, it was %d", ev.ExitCode, tr.ExitCode)
	case ev.Type == store.ContainerDied && ev.ExitKnown && ev.OccurredAt != tr.FinishedAt:
		return fmt.Sprintf("the end is %d, it was %d", ev.OccurredAt, tr.FinishedAt)
	case ev.Type == store.ContainerDied && ev.ExitKnown && !e.had(func(tr simruntime.Transition) bool { return tr.Reason == ev.Reason }):
		return fmt.Sprintf("the reason is %q, it was %q", ev.Reason, tr.Reason)
	case ev.Type == store.ContainerDied && !ev.ExitKnown && (ev.ExitCode != 0 || ev.Reason != ""):
		return fmt.Sprintf("a code or reason that is not known: %d %q", ev.ExitCode, ev.Reason)
	case ev.Type == store.ContainerStarted && ev.OccurredAt != tr.StartedAt && !j.named(e, ev):
		return fmt.Sprintf("the start is %d, it was %d", ev.OccurredAt, tr.StartedAt)
	case (ev.Type == store.ContainerCreated || ev.Type == store.SandboxCreated) && ev.OccurredAt != tr.CreatedAt &&
		ev.OccurredAt != tr.CreatedAt-int64(j.w.p.profile.CreatedSkew) && !j.named(e, ev):
		return fmt.Sprintf("the creation is %d, it was %d", ev.OccurredAt, tr.CreatedAt)
	case (ev.Type == store.SandboxReady || ev.Type == store.SandboxNotReady) && !j.named(e, ev):
		return fmt.Sprintf("the time is %d, which no event said", ev.OccurredAt)
	}
	return ""
}

// had says whether a transition of an entity was ever so.
func (e *entity) had(is func(simruntime.Transition) bool) bool {
	return slices.ContainsFunc(e.happened, is)
}

// named says whether the time of a step is one that an event had which named the
// step, or none.
func (j *judging) named(e *entity, ev told) bool {
	return ev.OccurredAt == 0 || j.w.details.named(e.id, ev.OccurredAt)
}

// identity compares what an event says of the entity itself.
func (j *judging) identity(e *entity, ev told) string {
	if len(e.happened) == 0 {
		return "it never was"
	}
	tr := e.happened[0]
	fixed := ev.Change == store.ChangeAmended && e.place >= 4 // a tombstone learns no more than start and end
	switch {
	case ev.Pod.UID != tr.PodUID || ev.Pod.Namespace != tr.Namespace || ev.Pod.Name != tr.Pod:
		return fmt.Sprintf("the pod is %s %s/%s, it was %s %s/%s", ev.Pod.UID, ev.Pod.Namespace, ev.Pod.Name, tr.PodUID, tr.Namespace, tr.Pod)
	case ev.SandboxID != tr.SandboxID && (ev.SandboxID != "" || !fixed && !j.before(ev, j.w.details.placedIn(e.id))):
		return fmt.Sprintf("the sandbox is %s, it was %s", short(ev.SandboxID), short(tr.SandboxID))
	case e.kind == simruntime.Container && (ev.Container.Name != tr.Name || ev.Container.Attempt != tr.Attempt) &&
		(ev.Container.Name != "" || !fixed && !j.before(ev, j.w.seen.shown(e.id))):
		return fmt.Sprintf("the container is %s %d, it was %s %d", ev.Container.Name, ev.Container.Attempt, tr.Name, tr.Attempt)
	case ev.ObservedAt == 0:
		return "no time of the observation"
	}
	return j.w.details.differ(ev)
}

// before says whether an event may have been made before something was known, by any of
// what said so: what a kill took away is not known to the next life. While the disk hangs,
// what is known waits behind it.
func (j *judging) before(ev told, said []sighting) bool {
	made := j.made(ev)
	return !slices.ContainsFunc(said, func(s sighting) bool {
		kept := s.life.ended.IsZero() || !made.After(s.life.ended) || j.w.disk.firm(s)
		return kept && s.at.Before(made) && !j.w.disk.troubled(s.at, made)
	})
}

// differ compares the address and the labels of the pod with what statuses said.
func (d *details) differ(ev told) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case ev.Pod.IP != "" && !d.ips[ev.Pod.UID][ev.Pod.IP]:
		return fmt.Sprintf("the pod's address is %s, which no status said", ev.Pod.IP)
	case len(ev.Pod.Labels) > 0 && d.labels[ev.SandboxID] != nil && !maps.Equal(ev.Pod.Labels, d.labels[ev.SandboxID]):
		return fmt.Sprintf("the labels are %v, they were %v", ev.Pod.Labels, d.labels[ev.SandboxID])
	}
	return ""
}

// amended judges what was learnt late: each field that changed is the entity's own.
func (j *judging) amended(e *entity, ev told) string {
	for _, f := range ev.Changed {
		is := func(tr simruntime.Transition) bool { return true }
		switch f {
		case store.FieldStartedAt:
			if ev.ExitKnown {
				continue // the time is that of the end
			}
			is = func(tr simruntime.Transition) bool { return tr.StartedAt == ev.OccurredAt }
		case store.FieldFinishedAt:
			is = func(tr simruntime.Transition) bool { return ev.ExitKnown && tr.FinishedAt == ev.OccurredAt }
		case store.FieldExitCode:
			is = func(tr simruntime.Transition) bool {
				return ev.ExitKnown && tr.FinishedAt != 0 && tr.ExitCode == ev.ExitCode
			}
		case store.FieldReason:
			is = func(tr simruntime.Transition) bool { return ev.ExitKnown && tr.Reason == ev.Reason }
		}
		if !e.had(func(tr simruntime.Transition) bool { return !tr.At.After(ev.read) && is(tr) }) {
			return fmt.Sprintf("%s is amended to what it never was: code %d, reason %q, time %d", f, ev.ExitCode, ev.Reason, ev.OccurredAt)
		}
	}
	switch {
	case len(ev.Changed) == 0:
		return "nothing is amended"
	case ev.ExitKnown && !e.had(func(tr simruntime.Transition) bool {
		return tr.FinishedAt == ev.OccurredAt && tr.ExitCode == ev.ExitCode && tr.Reason == ev.Reason
	}):
		return fmt.Sprintf("such an end never was: code %d, reason %q, time %d", ev.ExitCode, ev.Reason, ev.OccurredAt)
	case e.place == 0:
		return "nothing was told before that could be amended"
	case places[ev.State] != e.place:
		return fmt.Sprintf("it is said to be %s at step %d", ev.State, e.place)
	}
	return ""
}

// lately says whether what was said at a time may have led to what was told later:
// nothing waits but for the disk.
func (j *judging) lately(x said, ev told) bool {
	const while = 2 * time.Second
	made := j.made(ev)
	return made.Sub(x.at) <= while || j.w.disk.troubled(x.at, made)
}

// misled says which wrong answers a step was told on that did not happen, or not by
// then. "": none that would do.
func (j *judging) misled(e *entity, ev told) string {
	all := j.w.ledger.about(e.id, e.since, ev.read)
	is := func(claim string) func(said) bool { return func(x said) bool { return x.lie && x.claim == claim } }
	switch ev.Type {
	case store.ContainerStarted:
		if ev.OccurredAt != 0 {
			return ""
		}
		// A status, or the statuses in an event, are believed at once; a list only where
		// what is asked then gives no answer (O2).
		for i, x := range all {
			if is("CONTAINER_RUNNING")(x) && (x.by == byStatus || answers(all[i+1:], x) < 2) {
				return "one that said RUNNING by a " + string(x.by)
			}
		}
	case store.SandboxReady, store.SandboxNotReady:
		claim := "SANDBOX_READY"
		if ev.Type == store.SandboxNotReady {
			claim = "SANDBOX_NOTREADY"
		}
		if slices.ContainsFunc(all, is(claim)) {
			return "one that said " + claim
		}
		if ev.Type == store.SandboxNotReady && ev.Inferred && j.goneTwice(all, ev) {
			return "two that lacked it"
		}
	case store.ContainerDied:
		switch {
		case ev.ExitKnown:
		case ev.Inferred && e.place >= 2 && (j.goneTwice(all, ev) || j.w.past.did(e.id, ev.read, simruntime.Removed)):
			return "what had it started before it was removed"
		case slices.ContainsFunc(all, is("CONTAINER_EXITED")):
			return "one that said EXITED, and no status a code"
		}
	case store.ContainerRemoved, store.SandboxRemoved:
		if j.goneTwice(all, ev) {
			return "two that lacked it"
		}
	}
	return ""
}

// answers counts the statuses that were asked for after something was said.
func answers(all []said, x said) (n int) {
	for _, y := range all {
		if y.call() && y.by == byStatus && !y.sent.Before(x.at) {
			n++
		}
	}
	return n
}

// goneTwice says whether two wrong witnesses had it removed (O4): the second of two
// calls was sent after the first was answered, and nothing between showed that it is
// there.
func (j *judging) goneTwice(all []said, ev told) bool {
	for i, a := range all {
		if !a.lie || a.claim != gone {
			continue
		}
		for _, b := range all[i+1:] {
			if b.claim != gone && b.at.After(a.at) {
				break // it is there
			}
			if b.lie && b.claim == gone && (!b.call() || !a.call() || !b.sent.Before(a.at)) && j.lately(b, ev) {
				return true
			}
		}
	}
	return false
}

// returned judges a return to an earlier state (O3): a call showed one, and an
// inspection sent after that agreed. Unless what is taken back was told on a lie's
// word, both are wrong.
func (j *judging) returned(e *entity, ev told) string {
	all := j.w.ledger.about(e.id, e.since, ev.read)
	to := places[ev.State]
	if to == 0 || to >= e.place {
		return fmt.Sprintf("it returns to %s from step %d", ev.State, e.place)
	}
	for i, b := range all {
		if b.by != byStatus || !b.call() || places[b.claim] != to && (!unclear(b) || e.place < 4) || !j.lately(b, ev) {
			continue
		}
		for _, a := range all[:i] {
			earlier := places[a.claim] != 0 && places[a.claim] < e.place || unclear(a) && e.place == 4
			if earlier && a.call() && !b.sent.Before(a.at) && (e.believed || a.lie && b.lie) {
				if e.believed {
					j.counts["returns that took back what wrong answers had said"]++
				} else {
					j.counts["returns that two wrong answers had said"]++
				}
				e.place, e.back, e.since, e.believed = to, to, b.at, false
				e.rest = slices.DeleteFunc(slices.Clone(e.happened), func(tr simruntime.Transition) bool { return place(tr) <= to })
				return ""
			}
		}
	}
	return "it returns to " + ev.State + ", and no two answers, or true ones, said so"
}
