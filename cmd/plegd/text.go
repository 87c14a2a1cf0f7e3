package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store"
)

// textTime is RFC 3339 with milliseconds: as wide for every time.
const textTime = "2006-01-02T15:04:05.000Z07:00"

// shortID is how much of an id the text shows, as crictl does.
const shortID = 13

// formatText writes an event as one line for people: position, when it
// occurred (with ~ when it was observed, the former being unknown), type, pod,
// container, and the rest as key=value.
func formatText(ev *pleg.Event) ([]byte, error) {
	ns, mark := ev.OccurredAt, ' '
	if ns == 0 {
		ns, mark = ev.ObservedAt, '~'
	}
	pod := ev.Pod.Namespace + "/" + ev.Pod.Name
	if pod == "/" {
		pod = "-"
	}
	ctr := "-"
	if ev.Container.ID != "" {
		ctr = fmt.Sprintf("%s#%d", ev.Container.Name, ev.Container.Attempt)
	}
	line := fmt.Sprintf("%-22s %c%s  %-16s  %-28s  %-14s  %s", ev.Position, mark, time.Unix(0, ns).UTC().Format(textTime),
		ev.Type, printable(pod), printable(ctr), strings.Join(textDetails(ev), " "))
	return append([]byte(strings.TrimRight(line, " ")), '\n'), nil
}

// textDetails lists what only some events have.
func textDetails(ev *pleg.Event) []string {
	var out []string
	add := func(used bool, key string, value any) {
		if used {
			out = append(out, key+"="+printable(fmt.Sprint(value)))
		}
	}
	switch {
	case ev.ExitKnown:
		add(true, "exit", ev.ExitCode)
	case ev.Type == store.ContainerDied:
		add(true, "exit", "unknown")
	}
	add(ev.Reason != "", "reason", ev.Reason)
	add(ev.Change != "", "change", ev.Change)
	add(len(ev.Changed) > 0, "changed", strings.Join(ev.Changed, ","))
	add(ev.State != "", "state", ev.State)
	add(ev.Type == store.SandboxReady && ev.Pod.IP != "", "ip", ev.Pod.IP)
	add(ev.Type == store.SequenceSkipped, "from", ev.From)
	add(ev.Type == store.SequenceSkipped, "to", ev.To)
	id := ev.EntityID()
	add(id != "", "id", id[:min(len(id), shortID)])
	add(ev.Incarnation > 1, "incarnation", ev.Incarnation)
	add(ev.Type != store.SequenceSkipped, "source", ev.Source)
	if ev.Inferred {
		out = append(out, "inferred")
	}
	if ev.Volatile {
		out = append(out, "volatile")
	}
	return out
}

// printable replaces what would break a line or speak to a terminal: names and
// reasons come from whoever may create pods.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) && (r == ' ' || !unicode.IsSpace(r)) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
