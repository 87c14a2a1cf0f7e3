package pleg

import (
	"time"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/generic"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/metrics"
	"github.com/plegd/plegd/store"
)

// Status is what a Generator says of itself. Times are by the agent's wall
// clock; durations in JSON are in seconds.
type Status struct {
	Mode     Mode          `json:"mode"`
	Node     string        `json:"node"`
	Runtime  RuntimeStatus `json:"runtime"`
	Health   Health        `json:"health"`
	Position string        `json:"position"` // of the newest event
	Oldest   string        `json:"oldest"`   // the oldest position that can be read on from
	Journal  JournalStatus `json:"journal"`
	Relist   RelistStatus  `json:"relist"`
	Stream   StreamStatus  `json:"stream"`
	Queued   int           `json:"queued_events"` // received and not yet applied
	Asks     []AskStatus   `json:"reinspections"` // the reinspection queue
	State    StateStatus   `json:"state"`
}

// RuntimeStatus says who answers at the endpoint.
type RuntimeStatus struct {
	Endpoint string   `json:"endpoint"`
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Error    string   `json:"error,omitempty"` // why Version last failed
	Habits   []string `json:"habits"`          // what is known of it by name and version
	NotSent  []string `json:"not_sent"`        // kinds of change of which this run has found it to send no events
}

// JournalStatus describes the stored journal.
type JournalStatus struct {
	First   uint64 `json:"first"`
	Last    uint64 `json:"last"`
	Entries int    `json:"entries"`
	Bytes   int64  `json:"bytes"`
}

// RelistStatus describes the relists.
type RelistStatus struct {
	Periodic  bool    `json:"periodic"`
	Period    float64 `json:"period_seconds"`
	State     string  `json:"period_state"`   // polling, proving, stretching, stretched
	Clean     int     `json:"clean_relists"`  // in a row
	Needed    int     `json:"needed_relists"` // clean ones in a row before the period stretches
	Strikes   int     `json:"strikes"`        // relists with misses that are not forgiven yet
	Failures  int     `json:"failures"`       // full lists that failed in a row
	Error     string  `json:"error,omitempty"`
	Waiting   int     `json:"inspections_waiting"`
	InFlight  int     `json:"inspections_in_flight"`
	Hanging   int     `json:"inspections_hanging"`   // of those in flight, too slow to keep a place that others wait for
	Throttled uint64  `json:"inspections_throttled"` // had to wait because of the bound on calls per second, since the start
}

// StreamStatus describes the event stream. Counts are since the start.
type StreamStatus struct {
	State      string    `json:"state"`
	Since      time.Time `json:"since,omitzero"`
	Error      string    `json:"error,omitempty"`
	Reconnects uint64    `json:"reconnects"`
	Events     uint64    `json:"events"`
	Lost       uint64    `json:"lost"`
	Malformed  uint64    `json:"malformed"`
}

// AskStatus is one entry of the reinspection queue.
type AskStatus struct {
	ID      string   `json:"id"`
	Kind    string   `json:"kind"`
	Reasons []string `json:"reasons"`
	Fails   int      `json:"fails"` // failed calls in a row
}

// StateStatus describes the state file.
type StateStatus struct {
	Dir      string `json:"dir"` // "" in memory
	SetAside string `json:"set_aside,omitempty"`
	Reason   string `json:"reason,omitempty"` // why the old file was set aside
}

// Status returns what the generator says of itself.
func (g *Generator) Status() Status {
	v, verr := g.runtime.get()
	rel, j := g.relister.Status(), g.store.Journal()
	s := Status{
		Mode: g.cfg.Mode, Node: g.cfg.NodeName,
		Runtime:  RuntimeStatus{Endpoint: g.client.Path(), Name: v.Name, Version: v.Version, Error: verr, Habits: []string{}, NotSent: []string{}},
		Health:   g.Health(),
		Position: g.Position().String(), Oldest: g.Oldest().String(),
		Journal: JournalStatus{First: j.First, Last: j.Last, Entries: j.Entries, Bytes: j.Bytes},
		Relist:  relistStatus(rel),
		Stream:  g.streamStatus(),
		Queued:  g.loop.Queued(),
		Asks:    []AskStatus{},
		State:   StateStatus{Dir: g.cfg.StateDir},
	}
	habits := g.loop.RuntimeHabits()
	s.Runtime.Habits = append(s.Runtime.Habits, habits.Known.Words...)
	for _, kind := range habits.Learnt {
		s.Runtime.NotSent = append(s.Runtime.NotSent, kind.String())
	}
	if _, aside, why := g.lastReset(g.loop.Health()); why != "" {
		s.State.SetAside, s.State.Reason = aside, why
	}
	for _, a := range g.loop.Asks() {
		s.Asks = append(s.Asks, AskStatus{ID: a.ID, Kind: a.Kind.String(), Reasons: a.Why.Names(), Fails: int(a.Fails)})
	}
	return s
}

func relistStatus(r generic.Status) RelistStatus {
	return RelistStatus{
		Periodic: r.Periodic, Period: r.Period.Period.Seconds(), State: string(r.Period.State),
		Clean: r.Period.Clean, Needed: r.Period.Needed, Strikes: r.Period.Strikes, Failures: r.Failures, Error: r.Err,
		Waiting: r.Waiting, InFlight: r.Inspecting, Hanging: r.Hanging, Throttled: r.Throttled,
	}
}

func (g *Generator) streamStatus() StreamStatus {
	if g.watcher == nil {
		return StreamStatus{State: arbiter.StreamOff.String()}
	}
	w := g.watcher.Status()
	s := StreamStatus{
		State: w.State.String(), Error: w.Err, Reconnects: max(w.Opened, 1) - 1,
		Events: w.Events, Lost: w.Lost, Malformed: w.Malformed,
	}
	if w.Since.Tick != 0 {
		s.Since = time.Unix(0, w.Since.Wall).UTC()
	}
	return s
}

// gauges is read at each collection of metrics.
func (g *Generator) gauges() metrics.Gauges {
	h, rel := g.loop.Health(), g.relister.Status()
	m := metrics.Gauges{
		Stream: h.Stream, Period: rel.Period, Queued: h.Queued, Reinspections: h.Reinspect,
		Waiting: rel.Waiting, Inspecting: rel.Inspecting, Hanging: rel.Hanging, Throttled: rel.Throttled, Journal: g.store.Journal(),
		Sandboxes: map[string]int{}, Containers: map[string]int{}, RelistAge: -1,
		Conditions: map[string]bool{}, StateResets: uint64(h.Resets),
	}
	if g.report.Reason != nil {
		m.StateResets++
	}
	for _, name := range Conditions {
		m.Conditions[name] = false
	}
	for _, c := range g.conditions(h) {
		m.Conditions[c.Name] = true
	}
	if h.Relisted {
		m.RelistAge = h.RelistAge
	}
	if g.watcher != nil {
		w := g.watcher.Status()
		m.Reconnects, m.Events, m.EventsLost, m.EventsMalformed = max(w.Opened, 1)-1, w.Events, w.Lost, w.Malformed
	}
	m.Kubelet = g.kubeletGauges(h, rel)
	pods, _ := g.loop.Pods()
	for _, p := range pods {
		// A pod runs while its sandbox does: exited ones don't count
		// (kubernetes#81412).
		if len(p.Sandboxes) > 0 && p.Sandboxes[0].State == store.StateUp {
			m.RunningPods++
		}
		runs := false
		for _, s := range p.Sandboxes {
			m.Sandboxes[s.Journaled.Name(store.KindSandbox)]++
			runs = runs || cri.StateName(s.Kind, s.Reported) == store.StateUp.Name(store.KindSandbox)
		}
		if runs {
			m.Kubelet.Pods++
		}
		for _, c := range p.Containers {
			m.Containers[c.Journaled.Name(store.KindContainer)]++
			m.Kubelet.Containers[cri.StateName(c.Kind, c.Reported)]++
		}
	}
	return m
}

// kubeletGauges is what the kubelet's metrics take that plegd's own don't.
//
// The kubelet's alerts compare the time at which PLEG was last seen active with
// now, for a period of a second. Here it is active as long as the next list is
// not overdue, however far the period has stretched; in ModeEvented, while the
// stream is up.
func (g *Generator) kubeletGauges(h arbiter.Health, rel generic.Status) metrics.Kubelet {
	k := metrics.Kubelet{Containers: map[string]int{}}
	if g.watcher != nil {
		w := g.watcher.Status()
		k.Errors, k.Successes = w.Failed, w.Opened
	}
	now := g.cfg.Clock.Wall()
	switch {
	case !h.Relisted:
	case g.cfg.Mode != ModeEvented:
		k.LastSeen = now.Add(-max(0, h.RelistAge-rel.Promised))
	case h.Stream == arbiter.StreamUp:
		k.LastSeen = now
	default:
		k.LastSeen = h.StreamSince
	}
	return k
}
