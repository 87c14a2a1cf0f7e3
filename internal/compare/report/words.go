package report

import (
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/store"
)

// Name names the type of a transition in words.
func Name(t store.EventType) string {
	return map[store.EventType]string{
		store.SandboxCreated: "sandbox created", store.SandboxReady: "sandbox ready",
		store.SandboxNotReady: "sandbox not ready", store.SandboxRemoved: "sandbox removed",
		store.ContainerCreated: "container created", store.ContainerStarted: "container started",
		store.ContainerDied: "container died", store.ContainerRemoved: "container removed",
	}[t]
}

// Took shows a latency, "-" where there is none.
func Took(l compare.Latency, d time.Duration) string {
	if l.N == 0 {
		return "-"
	}
	return compare.Duration(d)
}

// clock shows a time in UTC.
func clock(ns int64, layout string) string { return time.Unix(0, ns).UTC().Format(layout) }

// short shortens an id as crictl does.
func short(id string) string {
	const shown = 13
	if len(id) > shown && !strings.ContainsAny(id, " ") {
		return id[:shown]
	}
	return id
}

// maxWords bounds what a line says of one thing: names come from the runtime, and may
// be longer than any terminal.
const maxWords = 400

func clip(s string) string {
	if len(s) > maxWords {
		s = strings.ToValidUTF8(s[:maxWords], "") + "…"
	}
	return s
}

// ms is a duration in ms, to the microsecond.
func ms(ns int64) float64 { return float64(ns/1000) / 1000 }

// exitWords says how a container ended.
func exitWords(t *compare.Transition) string {
	s := "exit code " + strconv.Itoa(int(*t.Exit))
	if t.Reason != "" {
		s += ", " + t.Reason
	}
	return s
}
