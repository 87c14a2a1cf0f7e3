package arbiter

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/store"
)

const nothing = "nothing\n"

// print renders all that a step decided.
func (tr *transcript) print(out Output) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if out.Step != 0 {
		line("clock stepped %s", offset(out.Step))
	}
	for _, a := range out.Anomalies {
		line("anomaly %s", a)
	}
	if out.Ignored > 0 {
		line("ignored %d", out.Ignored)
	}
	for i := range out.Changes.Events {
		line("journal %s", printEvent(&out.Changes.Events[i]))
	}
	for _, c := range out.Confirmed {
		line("confirmed %s", c.ID)
	}
	for _, r := range out.Changes.Records {
		line("record %s", printRecord(r))
	}
	for _, r := range out.Changes.Tombstones {
		line("tombstone %s", printRecord(r))
	}
	for _, id := range out.Changes.Forgotten {
		line("tombstone %s no more", id)
	}
	for _, a := range out.Changes.Asks {
		line("queue %s", printAsk(a))
	}
	for _, id := range out.Changes.Answered {
		line("queue %s no more", id)
	}
	for _, f := range out.Faults {
		line("fault %s %q", f.Key.ID, f.Err)
	}
	for _, a := range out.Actions {
		line("ask %s", printAction(a))
	}
	for _, f := range out.Fresh {
		if f.PodKey != "" {
			line("fresh %s", f.PodKey)
		}
	}
	for _, m := range out.Misses {
		line("miss %s %s", m.Key.ID, m.Kind)
	}
	for _, h := range out.Habits {
		line("habit %s %v", h.Kind, h.Learnt)
	}
	if out.Renewed {
		line("renewed")
	}
	if out.Relist != nil && (out.Relist.Changed > 0 || out.Relist.Misses > 0 || tr.core.stream == StreamUp && !out.Relist.Clean) {
		text := ""
		if tr.core.stream == StreamUp && !out.Relist.Clean {
			text = " not clean"
		}
		if n := out.Relist.Changed; n > 0 {
			text += fmt.Sprintf(" changed=%d", n)
		}
		if n := out.Relist.Misses; n > 0 {
			text += fmt.Sprintf(" misses=%d", n)
		}
		line("relist%s", text)
	}
	if out.Shrink {
		line("shrink")
	}
	if b.Len() == 0 {
		return nothing
	}
	return b.String()
}

// offset prints ns as a duration, a point in time as one from the start.
func offset(ns int64) string {
	d := time.Duration(ns)
	if d < 0 {
		return d.String()
	}
	return "+" + d.String()
}

func at(wall int64) string {
	if d := wall - start; d > -int64(24*365*time.Hour) && d < int64(24*365*100*time.Hour) {
		return offset(d)
	}
	return strconv.FormatInt(wall, 10)
}

func printEvent(ev *store.Event) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", ev.Type, eventID(ev))
	if ev.Change != "" {
		fmt.Fprintf(&b, " %s=%s state=%s", ev.Change, strings.Join(ev.Changed, ","), ev.State)
	}
	if ev.ExitKnown {
		fmt.Fprintf(&b, " code=%d", ev.ExitCode)
	}
	if ev.Reason != "" {
		fmt.Fprintf(&b, " reason=%s", ev.Reason)
	}
	if ev.OccurredAt != 0 {
		fmt.Fprintf(&b, " at=%s", at(ev.OccurredAt))
	}
	if ev.Pod.UID != "" {
		fmt.Fprintf(&b, " pod=%s", ev.Pod.UID)
	}
	if ev.Pod.IP != "" {
		fmt.Fprintf(&b, " ip=%s", ev.Pod.IP)
	}
	for k, v := range ev.Pod.Labels {
		fmt.Fprintf(&b, " label=%s:%s", k, v)
	}
	if ev.Incarnation != 1 {
		fmt.Fprintf(&b, " incarnation=%d", ev.Incarnation)
	}
	fmt.Fprintf(&b, " %s", ev.Source)
	if ev.Inferred {
		b.WriteString(" inferred")
	}
	return b.String()
}

func printRecord(r *store.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.ID, r.State.Name(r.Kind))
	if r.Incarnation != 1 {
		fmt.Fprintf(&b, " incarnation=%d", r.Incarnation)
	}
	if shown := rung(r.Kind, r.Reported); shown != r.State && r.Reported != store.ReportedNone && r.State != store.StateRemoved {
		fmt.Fprintf(&b, " reported=%s", reported(r))
	}
	if r.StartedAt != 0 {
		fmt.Fprintf(&b, " started=%s", at(r.StartedAt))
	}
	if r.Exit.Known() {
		fmt.Fprintf(&b, " code=%d finished=%s", r.Exit.Code, at(r.Exit.FinishedAt))
	}
	if r.Exit.Reason != "" {
		fmt.Fprintf(&b, " reason=%s", r.Exit.Reason)
	}
	if len(r.IPs) > 0 {
		fmt.Fprintf(&b, " ip=%s", strings.Join(r.IPs, ","))
	}
	if exitUnknown(r) {
		b.WriteString(" exit-seen")
	}
	if r.Journaled != r.State {
		fmt.Fprintf(&b, " told=%s", r.Journaled.Name(r.Kind))
	}
	if r.Provisional {
		b.WriteString(" provisional")
	}
	if r.Quiet {
		b.WriteString(" quiet")
	}
	if r.GaveUp != 0 {
		fmt.Fprintf(&b, " gave-up=%s", strings.Join(r.GaveUp.Names(), ","))
	}
	if r.Disputes != 0 {
		fmt.Fprintf(&b, " disputes=%d", r.Disputes)
	}
	return b.String()
}

func reported(r *store.Record) string {
	if s := rung(r.Kind, r.Reported); s != store.StateNone {
		return s.Name(r.Kind)
	}
	return strconv.Itoa(int(r.Reported))
}

func printAsk(a *store.Ask) string {
	text := a.ID + " " + strings.Join(a.Why.Names(), ",")
	for i, n := range a.Tries {
		if n > 0 {
			text += fmt.Sprintf(" %s-tries=%d", store.Reason(1 << i).Names()[0], n)
		}
	}
	if a.Fails > 0 {
		text += fmt.Sprintf(" fails=%d", a.Fails)
	}
	return text
}

func printAction(a Action) string {
	text := map[ActionKind]string{ActStatus: "status", ActLook: "look", ActPod: "pod", ActList: "list"}[a.Kind]
	if a.ID != "" {
		text += " " + a.ID
	}
	if a.Attempt > 0 {
		text += fmt.Sprintf(" attempt=%d", a.Attempt)
	}
	if a.NotBefore > 0 {
		text += " after " + offset(a.NotBefore)
	}
	return text
}

func (tr *transcript) show() string {
	var b strings.Builder
	for _, id := range sortedKeys(tr.core.ents) {
		r := &tr.core.ents[id].rec
		fmt.Fprintf(&b, "%s pod=%s\n", printRecord(r), r.PodKey())
	}
	for _, id := range sortedKeys(tr.core.tombs) {
		fmt.Fprintf(&b, "tombstone %s\n", printRecord(tr.core.tombs[id]))
	}
	for _, id := range sortedKeys(tr.core.asks) {
		a := tr.core.asks[id]
		fmt.Fprintf(&b, "queue %s\n", printAsk(&a))
	}
	if tr.core.horizon != (store.Horizon{}) {
		fmt.Fprintf(&b, "horizon %s\n", at(tr.core.horizon.Wall))
	}
	if b.Len() == 0 {
		return nothing
	}
	return b.String()
}
