package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/timestamps"
)

// Kubelet is what the kubelet's gauges and counters are made of when metrics
// are collected.
type Kubelet struct {
	LastSeen   time.Time      // up to when the generator was known to be active; zero: never
	Errors     uint64         // event streams that ended, or could not be opened
	Successes  uint64         // event streams that came up
	Pods       int            // pods with a ready sandbox
	Containers map[string]int // by state as the runtime last reported it
}

// The kubelet's metrics of pod lifecycle events, under its names and with its
// types and buckets (pkg/kubelet/metrics of Kubernetes 1.38; all of them are
// ALPHA there). docs/reference.md says where each differs. Three names break
// the rules for names, as they do upstream: counters without _total.
type kubelet struct {
	relistDuration, relistInterval, podRelistDuration, latency prometheus.Histogram
}

const kubeletNamespace = "kubelet"

// containerStates are the values of label container_state.
var containerStates = []string{"created", "exited", "running", "unknown"}

var (
	kubeletDiscarded = kubeletDesc("pleg_discard_events", "The number of discard events in PLEG: messages of the event stream thrown away, each followed by a relist.")
	kubeletLastSeen  = kubeletDesc("pleg_last_seen_seconds", "Timestamp in seconds when PLEG was last seen active: now, or when the next relist was due.")
	kubeletErrors    = kubeletDesc("evented_pleg_connection_error_count", "The number of errors encountered during the establishment of streaming connection with the CRI runtime, and of its ends.")
	kubeletSuccesses = kubeletDesc("evented_pleg_connection_success_count", "The number of times a streaming client was obtained to receive CRI Events, and was seen to work.")
	kubeletPods      = kubeletDesc("running_pods", "Number of pods that have a running pod sandbox.")
	kubeletRunning   = kubeletDesc("running_containers", "Number of containers, by state as the runtime reports it.", "container_state")
	kubeletDescs     = []*prometheus.Desc{kubeletDiscarded, kubeletLastSeen, kubeletErrors, kubeletSuccesses, kubeletPods, kubeletRunning}
)

func kubeletDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(kubeletNamespace, "", name), help, labels, nil)
}

func newKubelet() *kubelet {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: kubeletNamespace, Name: name, Help: help, Buckets: prometheus.DefBuckets})
	}
	return &kubelet{
		relistDuration:    histogram("pleg_relist_duration_seconds", "Duration in seconds for relisting pods in PLEG: of the lists, without the inspections that follow."),
		relistInterval:    histogram("pleg_relist_interval_seconds", "Interval in seconds between relisting in PLEG: between the starts of full lists."),
		podRelistDuration: histogram("pleg_pod_relist_duration_seconds", "Duration in seconds for relisting a single pod in PLEG: of looks at one sandbox or one pod."),
		latency:           histogram("evented_pleg_connection_latency_seconds", "The latency of streaming connection with the CRI runtime, measured in seconds: from an event's time to its receipt."),
	}
}

func (k *kubelet) collectors() []prometheus.Collector {
	return []prometheus.Collector{k.relistDuration, k.relistInterval, k.podRelistDuration, k.latency}
}

// collect sends what is asked for.
func (k *kubelet) collect(ch chan<- prometheus.Metric, g *Gauges) {
	send := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	seen := 0.0
	if !g.Kubelet.LastSeen.IsZero() {
		seen = float64(g.Kubelet.LastSeen.Unix())
	}
	send(kubeletLastSeen, prometheus.GaugeValue, seen)
	send(kubeletDiscarded, prometheus.CounterValue, float64(g.EventsLost))
	send(kubeletErrors, prometheus.CounterValue, float64(g.Kubelet.Errors))
	send(kubeletSuccesses, prometheus.CounterValue, float64(g.Kubelet.Successes))
	send(kubeletPods, prometheus.GaugeValue, float64(g.Kubelet.Pods))
	for _, s := range containerStates {
		send(kubeletRunning, prometheus.GaugeValue, float64(g.Kubelet.Containers[s]), s)
	}
}

// relisted notes a full list.
func (k *kubelet) relisted(took, interval time.Duration) {
	k.relistDuration.Observe(took.Seconds())
	if interval > 0 {
		k.relistInterval.Observe(interval.Seconds())
	}
}

// inspected notes an inspection. The status of one entity is no relist.
func (k *kubelet) inspected(kind arbiter.ActionKind, took time.Duration) {
	if kind == arbiter.ActLook || kind == arbiter.ActPod {
		k.podRelistDuration.Observe(took.Seconds())
	}
}

// stepped notes the age of an event. One whose time is implausible has none,
// nor has one whose time is a moment after its receipt.
func (k *kubelet) stepped(in arbiter.Input, anomalies []timestamps.Anomaly) {
	ev, ok := in.(*arbiter.EventSeen)
	if !ok || len(anomalies) > 0 {
		return
	}
	k.latency.Observe(max(0, time.Duration(ev.At.Wall-ev.CreatedAt).Seconds()))
}
