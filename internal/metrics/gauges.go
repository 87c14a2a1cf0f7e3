package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/generic"
	"github.com/plegd/plegd/store"
)

// Gauges is what is read when metrics are collected.
type Gauges struct {
	Stream          arbiter.StreamState
	Reconnects      uint64 // streams opened after the first
	Events          uint64 // messages received on the stream
	EventsLost      uint64 // received and thrown away, since the queue was full
	EventsMalformed uint64 // could not be decoded
	Period          generic.PeriodStatus
	Conditions      map[string]bool // by name, all of them: whether it holds
	Queued          int
	Reinspections   int    // entries of the reinspection queue
	Waiting         int    // inspections that wait for their time or a slot
	Throttled       uint64 // inspections that had to wait because of the bound on calls per second
	Inspecting      int    // inspections in flight
	Hanging         int    // of those, too slow to keep a place that others wait for
	StateResets     uint64 // how often in this run the state was lost and begun anew
	Journal         store.Journal
	RunningPods     int
	Sandboxes       map[string]int // by state
	Containers      map[string]int // by state
	RelistAge       time.Duration  // since the last good full list was sent; negative: never
	Kubelet         Kubelet
}

// gaugeDescs lists what collect sends.
var gaugeDescs []*prometheus.Desc

// describe names one of them.
func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	gaugeDescs = append(gaugeDescs, d)
	return d
}

var (
	descStream      = describe("stream_state", "State of the event stream: 1 for the present one.", "state")
	descReconnects  = describe("stream_reconnects_total", "Event streams opened after the first.")
	descReceived    = describe("stream_messages_total", "Messages received on the event stream.")
	descLost        = describe("stream_messages_lost_total", "Messages received and thrown away since the queue was full; each time a relist follows.")
	descMalformed   = describe("stream_messages_malformed_total", "Messages received that could not be decoded.")
	descQueue       = describe("event_queue_length", "Messages received that wait for the arbiter.")
	descPeriod      = describe("relist_period_seconds", "The relist period in force.")
	descPeriodState = describe("relist_period_state", "State of the adaptive relist period: 1 for the present one.", "state")
	descStrikes     = describe("relist_period_strikes", "Relists with misses that are not forgiven yet; each doubles the clean relists that are needed.")
	descClean       = describe("relist_period_clean_relists", "Clean relists in a row.")
	descNeeded      = describe("relist_period_needed_relists", "Clean relists in a row that are needed before the period stretches.")
	descCondition   = describe("condition", "1 while the condition holds, which is something that is wrong, else 0.", "condition")
	descRelistAge   = describe("relist_age_seconds", "Time since the last good full list was sent; absent before the first.")
	descReinspect   = describe("reinspection_queue_length", "Entities whose state has yet to be asked for again.")
	descThrottled   = describe("inspections_throttled_total", "Inspections that had to wait because of the bound on calls per second.")
	descWaiting     = describe("inspections_waiting", "Inspections that wait for their time or for a slot.")
	descInspecting  = describe("inspections_in_flight", "Inspections in flight.")
	descHanging     = describe("inspections_hanging", "Inspections in flight that are too slow to keep a place that others wait for.")
	descResets      = describe("state_resets_total", "How often the state was no use and was set aside and begun anew, at the start or later.")
	descFirst       = describe("journal_first_sequence", "Number of the oldest event in the journal, 0 if it is empty.")
	descLast        = describe("journal_last_sequence", "Number of the newest event in the journal, 0 if it is empty.")
	descEntries     = describe("journal_entries", "Events in the journal.")
	descBytes       = describe("journal_size_bytes", "Size of the events in the journal.")
	descPods        = describe("running_pods", "Pods whose current sandbox is ready.")
	descSandboxes   = describe("sandboxes", "Sandboxes, by state.", "state")
	descContainers  = describe("containers", "Containers, by state.", "state")
)

// states are the values of label state; any other can't occur.
var (
	streamStates = []arbiter.StreamState{arbiter.StreamOff, arbiter.StreamDown, arbiter.StreamUp, arbiter.StreamUnsupported}
	periodStates = []generic.PeriodState{generic.Polling, generic.Proving, generic.Stretching, generic.Stretched}
	entityStates = []store.State{store.StateNone, store.StateCreated, store.StateUp, store.StateDown}
)

// collect sends the metrics. They come from one reading, so they fit together.
func (g Gauges) collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	for _, s := range streamStates {
		gauge(descStream, truth(s == g.Stream), s.String())
	}
	counter(descReconnects, g.Reconnects)
	counter(descReceived, g.Events)
	counter(descLost, g.EventsLost)
	counter(descMalformed, g.EventsMalformed)
	gauge(descQueue, float64(g.Queued))
	gauge(descPeriod, g.Period.Period.Seconds())
	for _, s := range periodStates {
		gauge(descPeriodState, truth(s == g.Period.State), string(s))
	}
	gauge(descStrikes, float64(g.Period.Strikes))
	gauge(descClean, float64(g.Period.Clean))
	gauge(descNeeded, float64(g.Period.Needed))
	for name, holds := range g.Conditions {
		gauge(descCondition, truth(holds), name)
	}
	if g.RelistAge >= 0 {
		gauge(descRelistAge, g.RelistAge.Seconds())
	}
	gauge(descReinspect, float64(g.Reinspections))
	gauge(descWaiting, float64(g.Waiting))
	counter(descThrottled, g.Throttled)
	gauge(descInspecting, float64(g.Inspecting))
	gauge(descHanging, float64(g.Hanging))
	counter(descResets, g.StateResets)
	gauge(descFirst, float64(g.Journal.First))
	gauge(descLast, float64(g.Journal.Last))
	gauge(descEntries, float64(g.Journal.Entries))
	gauge(descBytes, float64(g.Journal.Bytes))
	gauge(descPods, float64(g.RunningPods))
	for _, s := range entityStates {
		name := s.Name(store.KindSandbox)
		gauge(descSandboxes, float64(g.Sandboxes[name]), name)
		name = s.Name(store.KindContainer)
		gauge(descContainers, float64(g.Containers[name]), name)
	}
}

// truth is 1 for true.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// BuildInfo is a gauge that is always 1 and says which build this is.
func BuildInfo(version, goVersion string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": goVersion},
	})
	g.Set(1)
	return g
}
