package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/oracletest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// judging compares a journal, as it was told, with the history. It changes nothing
// of the world, so a journal can be tampered with and judged again.
type judging struct {
	w      *world
	bad    []string
	counts map[string]int
	zero   map[*life]time.Time // when the agent's running time was 0, as if it had run all the time
}

// entity is one sandbox or container: what happened to it, and what was told.
type entity struct {
	id       string
	kind     simruntime.Kind
	happened []simruntime.Transition
	events   []told

	// What the events came to, as far as they were judged.
	place    int                     // of the last step
	since    time.Time               // of the last return to an earlier state
	back     int                     // the place to which that was
	rest     []simruntime.Transition // what may be told next
	believed bool                    // a step since the return was told on a lie's word
}

// judge compares a journal with the history, of all entities or of those named.
func (w *world) judge(all []told, only ...string) *judging {
	j := &judging{w: w, counts: map[string]int{}, zero: map[*life]time.Time{}}
	for _, ev := range all {
		// Exact if any event of a life was read at once, and never too late.
		if at := ev.read.Add(-time.Duration(ev.Running)); j.zero[ev.life].IsZero() || at.Before(j.zero[ev.life]) {
			j.zero[ev.life] = at
		}
	}
	byID := map[string]*entity{}
	var order []*entity
	get := func(id string, kind simruntime.Kind) *entity {
		e := byID[id]
		if e == nil {
			e = &entity{id: id, kind: kind, since: w.began}
			byID[id] = e
			order = append(order, e)
		}
		return e
	}
	meant := func(id string) bool { return len(only) == 0 || slices.Contains(only, id) }
	for _, tr := range w.rt.History() {
		if !meant(tr.ID) {
			continue
		}
		e := get(tr.ID, tr.Kind)
		e.happened = append(e.happened, tr)
	}
	for _, ev := range all {
		if id := ev.EntityID(); id != "" && meant(id) {
			kind := simruntime.Sandbox
			if ev.Container.ID != "" {
				kind = simruntime.Container
			}
			e := get(id, kind)
			e.events = append(e.events, ev)
		}
	}
	for _, e := range order {
		j.order(e)
		j.told(e)
		j.missing(e)
	}
	return j
}

// made returns when an event was made, which may be long before it was read: the
// disk may hang, or the reader's position expire, and the next life tell it.
func (j *judging) made(ev told) time.Time {
	for _, l := range j.w.lives[:ev.life.n] {
		zero, ok := j.zero[l]
		if at := zero.Add(time.Duration(ev.Running)); ok && !at.Before(l.began) && (l.ended.IsZero() || !at.After(l.ended)) {
			return at
		}
	}
	return ev.read
}

// order: each step once in a life, in order, and another life only after a
// return that was told (O9).
func (j *judging) order(e *entity) {
	life, rank := uint32(0), 0
	epoch := ""
	for _, ev := range e.events {
		r := oracletest.Rank(ev.Event)
		switch {
		case ev.Change == store.ChangeRegressed:
			life, rank = ev.Incarnation, 0
		case r == 0:
		case rank == 4 && j.forgotten(e, ev):
			life, rank = ev.Incarnation, r
		case life != 0 && ev.Incarnation != life && epoch == ev.Position.Epoch.String():
			j.failOf(e, "in life %d without a return to it: %v", ev.Incarnation, ev.Position)
			return
		case r <= rank:
			j.failOf(e, "%s at %v comes after step %d", ev.Type, ev.Position, rank)
			return
		default:
			life, rank = ev.Incarnation, r
		}
		epoch = ev.Position.Epoch.String()
	}
}

// told: what was told happened, in that order and with those values, or wrong
// answers said so, as many and such as it takes. The last word is the truth.
func (j *judging) told(e *entity) {
	e.rest = e.happened
	for _, ev := range e.events {
		why := ""
		switch ev.Change {
		case store.ChangeAmended:
			why = j.amended(e, ev)
		case store.ChangeUnknown:
			if !j.w.ledger.lied(e.id, e.since, ev.read, func(x said) bool { return unclear(x) && j.lately(x, ev) }) {
				why = "nothing said that it is UNKNOWN"
			}
		case store.ChangeRegressed:
			why = j.returned(e, ev)
		default:
			why = j.step(e, ev)
		}
		if why == "" {
			why = j.identity(e, ev)
		}
		if why != "" {
			j.failOf(e, "%v %s: %s", ev.Position, ev.Type, why)
			return
		}
	}
	end := 0
	for _, tr := range e.happened {
		end = max(end, place(tr))
	}
	if e.place != end && len(e.events) > 0 {
		j.failOf(e, "the last word is step %d, it came to step %d", e.place, end)
	}
}

// forgotten says whether an entity that was told to be removed, and never was, may be
// created again with an event: wrong answers lacked it, and its tombstone may be
// forgotten by now (O6).
func (j *judging) forgotten(e *entity, ev told) bool {
	return j.w.p.tombs > 0 && oracletest.Rank(ev.Event) == 1 &&
		j.w.ledger.lied(e.id, e.since, ev.read, func(x said) bool { return x.claim == gone && x.call() })
}

// step judges a step that was told.
func (j *judging) step(e *entity, ev told) string {
	if e.place == 4 && e.believed && j.forgotten(e, ev) {
		j.counts["told anew what wrong answers had lacked until it was forgotten"]++
		e.rest, e.since, e.back, e.believed = e.happened, j.made(ev), 0, false
	}
	i := slices.IndexFunc(e.rest, func(tr simruntime.Transition) bool { return word(tr) == ev.Type })
	e.place = oracletest.Rank(ev.Event)
	if i >= 0 && !e.rest[i].At.After(ev.read) {
		tr := e.rest[i]
		e.rest = e.rest[i+1:]
		return j.values(e, ev, tr)
	}
	if i >= 0 {
		e.rest = e.rest[i+1:]
	}
	how := j.misled(e, ev)
	if how == "" {
		return "it did not happen, or not by then, or not after what was told before; and no such wrong answers said so"
	}
	e.believed = true
	j.counts["told on the word of "+how]++
	return ""
}

// missing: what was observable was told. Each transition is one of: told, not
// observable, lost. After a return to an earlier state what comes after that state
// is to be told again.
func (j *judging) missing(e *entity) {
	at := map[int]time.Time{} // when it was decided first to tell which step, since the last return
	amended := map[string]bool{}
	code, known := false, false
	for _, ev := range e.events {
		r := oracletest.Rank(ev.Event)
		if ev.Change == store.ChangeRegressed {
			maps.DeleteFunc(at, func(r int, _ time.Time) bool { return r > places[ev.State] })
			clear(amended)
			code = false
		}
		if r == 1 && !at[4].IsZero() { // forgotten
			clear(at)
			clear(amended)
			code = false
		}
		if r > 0 && at[r].IsZero() {
			at[r] = j.made(ev)
		}
		for _, f := range ev.Changed {
			amended[f] = true
		}
		code = code || ev.ExitKnown
		known = known || r == 1
	}
	for _, tr := range e.happened {
		r := place(tr)
		if r == 0 {
			continue // an edit
		}
		j.counts["transitions"]++
		switch {
		case !at[r].IsZero():
			j.counts["transitions told"]++
			continue
		case r == e.back: // the return told it
			j.counts["transitions told"]++
			continue
		case r < e.back: // before the state that was returned to
			j.counts["transitions not observable"]++
			continue
		case r == 4 && known:
			j.failOf(e, "its removal was not told")
			return
		case r == 4: // nothing was told of it at all
			j.counts["transitions not observable"]++
			continue
		}
		switch firm, seen := j.firm(e, rung(r), at, amended); {
		case firm != "":
			j.failOf(e, "%s was not told, and %s", word(tr), firm)
			return
		case seen:
			j.counts["transitions seen but lost with a kill or in a disk that hung"]++
		default:
			j.counts["transitions not observable"]++
		}
	}
	if len(e.events) > 0 && !known {
		j.failOf(e, "something was told of it, but not that it was created")
	}
	if !at[4].IsZero() && !at[2].IsZero() && at[3].IsZero() {
		j.failOf(e, "it was up and removed, but its end was not told")
	}
	if e.kind == simruntime.Sandbox {
		return
	}
	if firm, _ := j.firm(e, rungCode, at, amended); firm != "" && known && !code {
		j.failOf(e, "its code was not told, and %s", firm)
	}
}

// firm says why a step had to be told, "" if nothing demands it. seen: something
// was seen of it, but not for long enough.
func (j *judging) firm(e *entity, r rung, at map[int]time.Time, amended map[string]bool) (why string, seen bool) {
	for _, s := range j.w.seen.all[e.id][r] {
		if s.at.Before(e.since) {
			continue // a return to an earlier state took it back
		}
		seen = true
		if j.w.p.tombs > 0 && (s.hung || e.had(func(tr simruntime.Transition) bool { return place(tr) == 4 && tr.At.Before(s.at) })) {
			continue // late word, by the time that it is taken in, of what may be forgotten by then (O6)
		}
		if !j.w.disk.firm(s) || overtaken(e, r, s, at, amended) {
			continue
		}
		if r == rungDown && s.by == byList && j.w.ledger.lied(e.id, s.at, time.Now(), func(x said) bool { return alive(x) && x.call() }) {
			j.counts["ends that lists showed and another answer, wrong, took back"]++
			continue // before a status had shown it (O2)
		}
		return fmt.Sprintf("the agent saw it at %.6f in life %d by a %s", s.at.Sub(j.w.began).Seconds(), s.life.n, s.by), true
	}
	return "", seen
}

// overtaken says whether a step was seen when a later one was told already: then
// there is only an amendment, of the fields that a status said (O9). While a commit
// hangs, the later one may follow from what had come before, and be told after it.
func overtaken(e *entity, r rung, s sighting, at map[int]time.Time, amended map[string]bool) bool {
	field := map[rung]string{rungUp: store.FieldStartedAt, rungDown: store.FieldFinishedAt, rungCode: store.FieldExitCode}[r]
	for later := min(int(r), 3) + 1; later <= 4; later++ {
		switch before := s.at.Before(at[later]); {
		case at[later].IsZero() || before && !s.hung:
			continue
		case e.kind == simruntime.Sandbox:
			return true
		case before:
			if amended[field] {
				return true
			}
			continue
		case s.by != byStatus:
			return true
		}
		return amended[field]
	}
	return false
}

// failOf notes a violation about one entity, with its whole story.
func (j *judging) failOf(e *entity, format string, args ...any) {
	w := j.w
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: ", e.kind, short(e.id))
	fmt.Fprintf(&b, format, args...)
	seconds := func(t time.Time) float64 { return t.Sub(w.began).Seconds() }
	for _, tr := range e.happened {
		fmt.Fprintf(&b, "\n\thappened %10.6f %s %d", seconds(tr.At), tr.Step, tr.ExitCode)
	}
	for _, ev := range e.events {
		fmt.Fprintf(&b, "\n\ttold     %10.6f, made %10.6f %v %s code %v/%d %s%v %s source %v inferred %v incarnation %d", seconds(ev.read), seconds(j.made(ev)), ev.Position.Seq, ev.Type, ev.ExitKnown, ev.ExitCode, ev.Change, ev.Changed, ev.State, ev.Source, ev.Inferred, ev.Incarnation)
	}
	type first struct {
		rung rung
		life *life
		by   source
	}
	printed := map[first]bool{}
	for r := rungCreated; r <= rungCode; r++ {
		for _, s := range w.seen.all[e.id][r] {
			if f := (first{r, s.life, s.by}); !printed[f] {
				printed[f] = true
				fmt.Fprintf(&b, "\n\tseen     %10.6f rung %d in life %d by a %s", seconds(s.at), r, s.life.n, s.by)
			}
		}
	}
	for _, x := range w.ledger.about(e.id, w.began, time.Now()) {
		if x.lie {
			fmt.Fprintf(&b, "\n\twrong    %10.6f %s by a %s in life %d", seconds(x.at), x.claim, x.by, x.life.n)
		}
	}
	j.bad = append(j.bad, b.String())
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
