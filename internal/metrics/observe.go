package metrics

import (
	"time"

	"google.golang.org/grpc/codes"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/store"
)

// off reports whether this is the zero Metrics.
func (m *Metrics) off() bool { return m.gauges == nil }

// CallStarted implements cri.Observer.
func (m *Metrics) CallStarted(method string) {
	if m.off() {
		return
	}
	m.callsInFlight.WithLabelValues(methodLabel(method)).Inc()
}

// CallDone implements cri.Observer.
func (m *Metrics) CallDone(method string, code codes.Code, took time.Duration) {
	if m.off() {
		return
	}
	label := methodLabel(method)
	m.callsInFlight.WithLabelValues(label).Dec()
	m.calls.WithLabelValues(label, codeLabel(code)).Inc()
	if method != methodEvents {
		m.callDuration.WithLabelValues(label).Observe(took.Seconds())
	}
}

// Relisted implements generic.Observer.
func (m *Metrics) Relisted(took, interval time.Duration, err error) {
	if m.off() {
		return
	}
	m.relists.WithLabelValues(result(err)).Inc()
	m.relistDuration.Observe(took.Seconds())
	if interval > 0 { // 0: the first
		m.relistInterval.Observe(interval.Seconds())
	}
	if m.kubelet != nil {
		m.kubelet.relisted(took, interval)
	}
}

// Inspected implements generic.Observer.
func (m *Metrics) Inspected(kind arbiter.ActionKind, took time.Duration, err error) {
	if m.off() {
		return
	}
	outcome := result(err)
	if cri.NotFound(err) {
		outcome = resultNotFound
	}
	m.inspections.WithLabelValues(kindLabel(kind), outcome).Inc()
	m.inspectDuration.WithLabelValues(kindLabel(kind)).Observe(took.Seconds())
	if m.kubelet != nil {
		m.kubelet.inspected(kind, took)
	}
}

// Stepped implements arbiter.Observer.
func (m *Metrics) Stepped(in arbiter.Input, out *arbiter.Output) {
	if m.off() {
		return
	}
	for _, a := range out.Anomalies {
		m.anomalies.WithLabelValues(a.String()).Inc()
	}
	for _, miss := range out.Misses {
		m.misses.WithLabelValues(miss.Kind.String()).Inc()
	}
	m.ignored.Add(float64(out.Ignored))
	if out.Step != 0 {
		m.clockSteps.Inc()
	}
	if m.kubelet != nil {
		m.kubelet.stepped(in, out.Anomalies)
	}
}

// Committed implements arbiter.Observer.
func (m *Metrics) Committed(took time.Duration, _ int, err error) {
	if m.off() {
		return
	}
	m.commits.WithLabelValues(result(err)).Inc()
	m.commitDuration.Observe(took.Seconds())
}

// Published implements arbiter.Observer. Events whose time the runtime never
// said, and those that amend an earlier one, have no latency.
func (m *Metrics) Published(ev *store.Event, latency time.Duration) {
	if m.off() {
		return
	}
	source := ev.Source.String()
	m.events.WithLabelValues(string(ev.Type), source).Inc()
	if latency > 0 {
		m.detectionLatency.WithLabelValues(source).Observe(latency.Seconds())
	}
}

func result(err error) string {
	if err != nil {
		return resultError
	}
	return resultSuccess
}
