package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/oracletest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// entity is one sandbox or container: what happened to it, and what was told.
type entity struct {
	id       string
	kind     simruntime.Kind
	happened []simruntime.Transition
	events   []told
}

// word is a transition as the journal would tell it.
func word(tr simruntime.Transition) store.EventType {
	if tr.Kind == simruntime.Sandbox {
		return map[simruntime.Step]store.EventType{
			simruntime.Created: store.SandboxCreated, simruntime.Ready: store.SandboxReady,
			simruntime.NotReady: store.SandboxNotReady, simruntime.Removed: store.SandboxRemoved,
		}[tr.Step]
	}
	return map[simruntime.Step]store.EventType{
		simruntime.Created: store.ContainerCreated, simruntime.Started: store.ContainerStarted,
		simruntime.StartFailed: store.ContainerDied, simruntime.Exited: store.ContainerDied, simruntime.Removed: store.ContainerRemoved,
	}[tr.Step]
}

// judge compares the journal with the history.
func (w *world) judge(all []told) {
	byID := map[string]*entity{}
	var order []*entity
	get := func(id string, kind simruntime.Kind) *entity {
		e := byID[id]
		if e == nil {
			e = &entity{id: id, kind: kind}
			byID[id] = e
			order = append(order, e)
		}
		return e
	}
	for _, tr := range w.rt.History() {
		e := get(tr.ID, tr.Kind)
		e.happened = append(e.happened, tr)
	}
	for _, ev := range all {
		if id := ev.EntityID(); id != "" {
			kind := simruntime.Sandbox
			if ev.Container.ID != "" {
				kind = simruntime.Container
			}
			e := get(id, kind)
			e.events = append(e.events, ev)
		}
	}
	for _, e := range order {
		w.judgeOrder(e)
		if w.lies(e.id) > 1 && w.believed(e) {
			w.count("entities about which two lies in a row were believed", 1)
			continue
		}
		w.judgeTold(e)
		w.judgeMissing(e)
	}
}

// believed says whether the journal has a return of the entity: then it told
// what wrong answers said, and may.
func (w *world) believed(e *entity) bool {
	return slices.ContainsFunc(e.events, func(ev told) bool { return ev.Change == store.ChangeRegressed })
}

// judgeOrder: each step once in a life, in order, and another life only after a
// return that was told (O9).
func (w *world) judgeOrder(e *entity) {
	life, rank := uint32(0), 0
	epoch := ""
	for _, ev := range e.events {
		r := oracletest.Rank(ev.Event)
		switch {
		case ev.Change == store.ChangeRegressed:
			life, rank = ev.Incarnation, 0
		case r == 0:
		case life != 0 && ev.Incarnation != life && epoch == ev.Position.Epoch.String():
			w.failOf(e, "in life %d without a return to it: %v", ev.Incarnation, ev.Position)
			return
		case r <= rank:
			w.failOf(e, "%s at %v comes after step %d", ev.Type, ev.Position, rank)
			return
		default:
			life, rank = ev.Incarnation, r
		}
		epoch = ev.Position.Epoch.String()
	}
}

// judgeTold: what was told happened, in that order, and with those values.
func (w *world) judgeTold(e *entity) {
	rest := e.happened
	for _, ev := range e.events {
		if ev.Change == store.ChangeAmended {
			if slices.Contains(ev.Changed, store.FieldExitCode) && ev.ExitKnown && !w.hadCode(e, ev.ExitCode) {
				w.failOf(e, "%v amends a code that it never had: %d", ev.Position, ev.ExitCode)
			}
			continue
		}
		if ev.Change == store.ChangeUnknown && w.lies(e.id) > 0 {
			continue // a wrong answer said so
		}
		if ev.Change != "" {
			w.failOf(e, "%v: %s, and no two wrong answers said so", ev.Position, ev.Change)
			return
		}
		i := slices.IndexFunc(rest, func(tr simruntime.Transition) bool { return word(tr) == ev.Type })
		if i < 0 && w.startUnasked(e, ev) {
			w.count("starts that one lie showed of what was gone when it was asked about", 1)
			continue
		}
		if i < 0 {
			w.failOf(e, "%s at %v did not happen, or not after what was told before", ev.Type, ev.Position)
			return
		}
		tr := rest[i]
		rest = rest[i+1:]
		switch {
		case tr.At.After(ev.read) && w.lies(e.id) < 2:
			w.failOf(e, "%s at %v was told before it happened", ev.Type, ev.Position)
		case ev.Type == store.ContainerDied && ev.ExitKnown && ev.ExitCode != tr.ExitCode:
			w.failOf(e, "%v tells code %d, it was %d", ev.Position, ev.ExitCode, tr.ExitCode)
		case ev.Type == store.ContainerDied && ev.ExitKnown && ev.OccurredAt != tr.FinishedAt:
			w.failOf(e, "%v tells the end %d, it was %d", ev.Position, ev.OccurredAt, tr.FinishedAt)
		case ev.Type == store.ContainerStarted && ev.OccurredAt != 0 && ev.OccurredAt != tr.StartedAt:
			w.failOf(e, "%v tells the start %d, it was %d", ev.Position, ev.OccurredAt, tr.StartedAt)
		}
	}
}

// startUnasked says whether a start, or the end that follows from it, was told
// because one wrong list showed it, of a container that was gone before anybody
// could ask (O2).
func (w *world) startUnasked(e *entity, ev told) bool {
	if w.lies(e.id) == 0 || ev.Type != store.ContainerStarted && (ev.Type != store.ContainerDied || !ev.Inferred) {
		return false
	}
	return slices.ContainsFunc(e.happened, func(tr simruntime.Transition) bool {
		return tr.Step == simruntime.Removed && !tr.At.After(ev.read)
	})
}

func (w *world) hadCode(e *entity, code int32) bool {
	return slices.ContainsFunc(e.happened, func(tr simruntime.Transition) bool {
		return word(tr) == store.ContainerDied && tr.ExitCode == code
	})
}

// judgeMissing: what was observable was told. Each transition is one of: told,
// not observable, lost.
func (w *world) judgeMissing(e *entity) {
	at := map[int]time.Time{} // when which rank was told first
	amended := map[string]bool{}
	code := false
	for _, ev := range e.events {
		if r := oracletest.Rank(ev.Event); r > 0 && at[r].IsZero() {
			at[r] = ev.read
		}
		for _, f := range ev.Changed {
			amended[f] = true
		}
		code = code || ev.ExitKnown
	}
	known := !at[1].IsZero()
	for _, tr := range e.happened {
		t := word(tr)
		if t == "" {
			continue // an edit
		}
		w.count("transitions", 1)
		r := oracletest.Rank(store.Event{Type: t})
		switch {
		case !at[r].IsZero():
			w.count("transitions told", 1)
			continue
		case r == 4 && known:
			w.failOf(e, "its removal was not told")
			return
		case r == 4: // nothing was told of it at all
			w.count("transitions not observable", 1)
			continue
		}
		switch firm, seen := w.firm(e, rung(r), tr.At, at, amended); {
		case firm != "":
			w.failOf(e, "%s was not told, and %s", t, firm)
			return
		case seen:
			w.count("transitions seen but lost with a kill or in a disk that hung", 1)
		default:
			w.count("transitions not observable", 1)
		}
	}
	if e.kind == simruntime.Sandbox {
		return
	}
	if firm, _ := w.firm(e, rungCode, w.began, at, amended); firm != "" && known && !code {
		w.failOf(e, "its code was not told, and %s", firm)
	}
	if !at[4].IsZero() && !at[2].IsZero() && at[3].IsZero() {
		w.failOf(e, "started and removed, but not died")
	}
}

// firm says why a step had to be told that happened at a time, "" if nothing demands
// it. seen: something was seen of it, but not for long enough.
func (w *world) firm(e *entity, r rung, happened time.Time, at map[int]time.Time, amended map[string]bool) (why string, seen bool) {
	for _, s := range w.seen.all[e.id][r] {
		if s.at.Before(happened) {
			continue // a wrong answer ran ahead of it
		}
		seen = true
		if !w.disk.firm(s) || overtaken(e, r, s, at, amended) {
			continue
		}
		if r == rungDown && s.by == byList && w.lies(e.id) > 0 {
			w.count("ends that one list showed and another, wrong, took back", 1)
			continue // before a status had shown it (O2)
		}
		return fmt.Sprintf("the agent saw it at %.6f in life %d by a %s", s.at.Sub(w.began).Seconds(), s.life.n, s.by), true
	}
	return "", seen
}

// overtaken says whether a step was seen when a later one was told already:
// then there is only an amendment, of the fields that a status said (O9).
func overtaken(e *entity, r rung, s sighting, at map[int]time.Time, amended map[string]bool) bool {
	for later := min(int(r), 3) + 1; later <= 4; later++ {
		if at[later].IsZero() || s.at.Before(at[later]) {
			continue
		}
		if s.by != byStatus || e.kind == simruntime.Sandbox {
			return true
		}
		return amended[map[rung]string{rungUp: store.FieldStartedAt, rungDown: store.FieldFinishedAt, rungCode: store.FieldExitCode}[r]]
	}
	return false
}

// failOf notes a violation about one entity, with its whole story.
func (w *world) failOf(e *entity, format string, args ...any) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: ", e.kind, short(e.id))
	fmt.Fprintf(&b, format, args...)
	for _, tr := range e.happened {
		fmt.Fprintf(&b, "\n\thappened %10.6f %s %d", tr.At.Sub(w.began).Seconds(), tr.Step, tr.ExitCode)
	}
	for _, ev := range e.events {
		fmt.Fprintf(&b, "\n\ttold     %10.6f %v %s code %v/%d %s%v source %v inferred %v incarnation %d", ev.read.Sub(w.began).Seconds(), ev.Position.Seq, ev.Type, ev.ExitKnown, ev.ExitCode, ev.Change, ev.Changed, ev.Source, ev.Inferred, ev.Incarnation)
	}
	for r := rungCreated; r <= rungCode; r++ {
		for _, s := range w.seen.all[e.id][r] {
			fmt.Fprintf(&b, "\n\tseen     %10.6f rung %d in life %d by a %s", s.at.Sub(w.began).Seconds(), r, s.life.n, s.by)
		}
	}
	if n := w.lies(e.id); n > 0 {
		fmt.Fprintf(&b, "\n\t%d wrong answers were given about it", n)
	}
	w.fail("%s", b.String())
}

// summarise counts what a run was.
func (w *world) summarise(all []told) {
	w.count("seeds", 1)
	w.count("virtual seconds", int(time.Since(w.began).Seconds()))
	w.count("events told", len(all))
	w.count("lives of the agent", len(w.lives))
	w.count("commits", w.disk.commits)
	w.count("commits that failed", w.disk.failed)
	w.count("stores copied", w.disk.rescued)
	w.count("stores begun anew", w.disk.renewed)
	w.count("calls", w.rt.CallStats("").Started)
	w.count("log lines", len(w.log.lines))
}
