package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/timestamps"
)

// namespace begins every name.
const namespace = "plegd"

// The values of label result.
const (
	resultSuccess  = "success"
	resultError    = "error"
	resultNotFound = "not_found" // an answer as good as any
)

// The buckets, in seconds. Each set spans what is normal and what is bad
// enough to be told from it.
var (
	// From an event that is there at once to the longest period and beyond.
	latencyBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}
	// Up to the usual timeout of a call, and two of them for a relist.
	callBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20}
	// The period doubles from one second to five minutes.
	intervalBuckets = []float64{.25, .5, 1, 1.5, 2, 4, 8, 16, 32, 64, 128, 256, 512}
	// From memory that is cached to a disk in trouble.
	commitBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
)

// Metrics observes the parts of a generator. All methods are safe for
// concurrent use and never block.
type Metrics struct {
	gauges  func() Gauges // nil in the zero Metrics
	kubelet *kubelet      // nil unless wanted

	relists          *prometheus.CounterVec
	relistDuration   prometheus.Histogram
	relistInterval   prometheus.Histogram
	calls            *prometheus.CounterVec
	callDuration     *prometheus.HistogramVec
	callsInFlight    *prometheus.GaugeVec
	inspections      *prometheus.CounterVec
	inspectDuration  *prometheus.HistogramVec
	events           *prometheus.CounterVec
	detectionLatency *prometheus.HistogramVec
	anomalies        *prometheus.CounterVec
	clockSteps       prometheus.Counter
	misses           *prometheus.CounterVec
	ignored          prometheus.Counter
	commits          *prometheus.CounterVec
	commitDuration   prometheus.Histogram
}

// New makes the metrics, as one collector, and registers them nowhere: from
// that on gauges is called at each collection, and what it reads has to be
// there. With kubeletToo there are the kubelet's metrics beside plegd's own.
func New(gauges func() Gauges, kubeletToo bool) *Metrics {
	m := newMetrics(gauges)
	m.initialize()
	if kubeletToo {
		m.kubelet = newKubelet()
	}
	return m
}

// newMetrics makes the metrics that are counted as things happen; those that
// are asked for are in gauges.go.
func newMetrics(gauges func() Gauges) *Metrics {
	return &Metrics{
		gauges:         gauges,
		relists:        counters("relists_total", "Full lists of the runtime, by result.", "result"),
		relistDuration: histogram("relist_duration_seconds", "How long full lists took.", callBuckets),
		relistInterval: histogram("relist_interval_seconds", "Time between the starts of full lists.", intervalBuckets),
		calls:          counters("runtime_calls_total", "Calls to the runtime that ended, by method and gRPC code.", "method", "code"),
		callDuration: histograms("runtime_call_duration_seconds", "How long calls to the runtime took, the event stream aside, by method.",
			callBuckets, "method"),
		callsInFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "runtime_calls_in_flight",
			Help: "Calls to the runtime that have not ended, an open event stream included, by method."}, []string{"method"}),
		inspections: counters("inspections_total", "Inspections that ended: of one entity (status), one sandbox (look) or one pod (pod).",
			"kind", "result"),
		inspectDuration: histograms("inspection_duration_seconds", "How long inspections took, by kind.", callBuckets, "kind"),
		events:          counters("events_total", "Events published, by type and by what the change was first seen in.", "type", "source"),
		detectionLatency: histograms("detection_latency_seconds",
			"Time from when something happened, by the runtime, until its event was published, by source. "+
				"What happened while no agent ran counts with the time until it was found.", latencyBuckets, "source"),
		anomalies:      counters("anomalies_total", "Times in events of the runtime that are implausible, by kind.", "kind"),
		clockSteps:     counter("clock_steps_total", "Steps of the wall clock that were noticed."),
		misses:         counters("stream_misses_total", "Changes that a list found although the stream should have told of them, by what changed.", "kind"),
		ignored:        counter("ignored_total", "Messages and list items of the runtime that could not be placed."),
		commits:        counters("commits_total", "Transactions on the state, by result.", "result"),
		commitDuration: histogram("commit_duration_seconds", "How long transactions on the state took.", commitBuckets),
	}
}

// initialize makes the series whose labels are known beforehand.
func (m *Metrics) initialize() {
	for _, result := range []string{resultSuccess, resultError} {
		m.relists.WithLabelValues(result)
		m.commits.WithLabelValues(result)
	}
	for _, kind := range []arbiter.ActionKind{arbiter.ActStatus, arbiter.ActLook, arbiter.ActPod} {
		m.inspectDuration.WithLabelValues(kindLabel(kind))
		for _, result := range []string{resultSuccess, resultNotFound, resultError} {
			m.inspections.WithLabelValues(kindLabel(kind), result)
		}
	}
	for _, source := range []timestamps.Provenance{timestamps.FromStream, timestamps.FromRelist, timestamps.FromInspect} {
		m.detectionLatency.WithLabelValues(source.String())
	}
	for _, kind := range arbiter.AllMissKinds() {
		m.misses.WithLabelValues(kind.String())
	}
	for kind := timestamps.Plausible + 1; int(kind) < timestamps.Anomalies; kind++ {
		m.anomalies.WithLabelValues(kind.String())
	}
}

// collectors lists what is counted as things happen.
func (m *Metrics) collectors() []prometheus.Collector {
	list := []prometheus.Collector{
		m.relists, m.relistDuration, m.relistInterval, m.calls, m.callDuration, m.callsInFlight, m.inspections, m.inspectDuration,
		m.events, m.detectionLatency, m.anomalies, m.clockSteps, m.misses, m.ignored, m.commits, m.commitDuration,
	}
	if m.kubelet != nil {
		list = append(list, m.kubelet.collectors()...)
	}
	return list
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
	for _, d := range gaugeDescs {
		ch <- d
	}
	if m.kubelet != nil {
		for _, d := range kubeletDescs {
			ch <- d
		}
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
	g := m.gauges()
	g.collect(ch)
	if m.kubelet != nil {
		m.kubelet.collect(ch, &g)
	}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
}

func histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

// methods are the calls that the client makes.
var methods = map[string]bool{
	"Version": true, "ListPodSandbox": true, "ListContainers": true, "StreamPodSandboxes": true, "StreamContainers": true,
	"PodSandboxStatus": true, "ContainerStatus": true, methodEvents: true,
}

// methodEvents is a call that lasts as long as the stream does.
const methodEvents = "GetContainerEvents"

// methodLabel bounds the values of label method.
func methodLabel(method string) string {
	if methods[method] {
		return method
	}
	return "other"
}

// codeLabel bounds the values of label code: a runtime may answer any number.
func codeLabel(code codes.Code) string {
	if code > codes.Unauthenticated {
		return codes.Unknown.String()
	}
	return code.String()
}

// kindLabel is the value of label kind for an inspection.
func kindLabel(kind arbiter.ActionKind) string {
	switch kind {
	case arbiter.ActStatus:
		return "status"
	case arbiter.ActLook:
		return "look"
	case arbiter.ActPod:
		return "pod"
	default:
		return "other"
	}
}
