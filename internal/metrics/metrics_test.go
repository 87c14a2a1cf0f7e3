package metrics

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/generic"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// A Metrics is the observer of every part.
var (
	_ cri.Observer     = (*Metrics)(nil)
	_ generic.Observer = (*Metrics)(nil)
	_ arbiter.Observer = (*Metrics)(nil)
)

func newTest(t *testing.T, g Gauges) (*Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	m := New(func() Gauges { return g }, false)
	if err := reg.Register(m); err != nil {
		t.Fatal(err)
	}
	return m, reg
}

// exercise makes every kind of series.
func exercise(m *Metrics) {
	m.CallStarted("ListContainers")
	m.CallStarted("ListContainers")
	m.CallDone("ListContainers", codes.OK, 3*time.Millisecond)
	m.CallStarted(methodEvents)
	m.CallDone(methodEvents, codes.Unavailable, time.Hour)
	m.Relisted(4*time.Millisecond, 0, nil)
	m.Relisted(5*time.Millisecond, time.Second, nil)
	m.Relisted(6*time.Second, time.Second, errors.New("x"))
	m.Inspected(arbiter.ActStatus, time.Millisecond, nil)
	m.Inspected(arbiter.ActStatus, time.Millisecond, status.Error(codes.NotFound, "x"))
	m.Inspected(arbiter.ActPod, time.Millisecond, status.Error(codes.Internal, "x"))
	m.Stepped(nil, &arbiter.Output{
		Anomalies: []timestamps.Anomaly{timestamps.Future, timestamps.Seconds, timestamps.Future},
		Misses:    []arbiter.Miss{{Kind: arbiter.MissSandboxReady}, {Kind: arbiter.MissContainerDropped}, {Kind: arbiter.MissContainerDropped}}, Ignored: 3, Step: 5,
	})
	m.Committed(time.Millisecond, 3, nil)
	m.Committed(time.Second, 3, store.ErrFull)
	m.Published(&store.Event{Type: store.ContainerDied, Source: timestamps.FromStream}, 2*time.Millisecond)
	m.Published(&store.Event{Type: store.ContainerDied, Source: timestamps.FromStream}, 0)
	m.Published(&store.Event{Type: store.SequenceSkipped}, 0)
}

var someGauges = Gauges{
	Stream: arbiter.StreamUp, Reconnects: 2, Events: 50, EventsLost: 3, EventsMalformed: 1, Queued: 4,
	Period:        generic.PeriodStatus{State: generic.Stretching, Period: 2 * time.Second, Clean: 5, Needed: 4, Strikes: 2},
	Conditions:    map[string]bool{"stream_down": true, "relist_failing": false},
	Reinspections: 5, Waiting: 6, Inspecting: 7, Journal: store.Journal{First: 8, Last: 17, Entries: 9, Bytes: 1000},
	RunningPods: 2, Sandboxes: map[string]int{"ready": 2, "notready": 1}, Containers: map[string]int{"running": 3},
	RelistAge: 1500 * time.Millisecond,
}

func TestLint(t *testing.T) {
	m, reg := newTest(t, someGauges)
	exercise(m)
	reg.MustRegister(BuildInfo("v1", "go1"))
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestValues(t *testing.T) {
	m, reg := newTest(t, someGauges)
	exercise(m)
	for series, want := range map[string]float64{
		`plegd_runtime_calls_total{code="OK",method="ListContainers"}`:              1,
		`plegd_runtime_calls_total{code="Unavailable",method="GetContainerEvents"}`: 1,
		`plegd_runtime_calls_in_flight{method="ListContainers"}`:                    1,
		`plegd_runtime_calls_in_flight{method="GetContainerEvents"}`:                0,
		`plegd_runtime_call_duration_seconds{method="ListContainers"}`:              1,
		`plegd_relists_total{result="success"}`:                                     2,
		`plegd_relists_total{result="error"}`:                                       1,
		`plegd_relist_duration_seconds`:                                             3,
		`plegd_relist_interval_seconds`:                                             2,
		`plegd_inspections_total{kind="status",result="success"}`:                   1,
		`plegd_inspections_total{kind="status",result="not_found"}`:                 1,
		`plegd_inspections_total{kind="pod",result="error"}`:                        1,
		`plegd_inspections_total{kind="look",result="error"}`:                       0,
		`plegd_anomalies_total{kind="future"}`:                                      2,
		`plegd_anomalies_total{kind="seconds"}`:                                     1,
		`plegd_anomalies_total{kind="zero"}`:                                        0,
		`plegd_clock_steps_total`:                                                   1,
		`plegd_stream_misses_total{kind="sandbox_ready"}`:                           1,
		`plegd_stream_misses_total{kind="container_removed_with_sandbox"}`:          2,
		`plegd_stream_misses_total{kind="container_exited"}`:                        0,
		`plegd_ignored_total`:                                                       3,
		`plegd_commits_total{result="success"}`:                                     1,
		`plegd_commits_total{result="error"}`:                                       1,
		`plegd_events_total{source="stream",type="ContainerDied"}`:                  2,
		`plegd_events_total{source="unknown",type="SequenceSkipped"}`:               1,
		`plegd_detection_latency_seconds{source="stream"}`:                          1,
		`plegd_detection_latency_seconds{source="relist"}`:                          0,
		`plegd_stream_state{state="up"}`:                                            1,
		`plegd_stream_state{state="down"}`:                                          0,
		`plegd_stream_messages_lost_total`:                                          3,
		`plegd_relist_period_seconds`:                                               2,
		`plegd_relist_age_seconds`:                                                  1.5,
		`plegd_journal_size_bytes`:                                                  1000,
		`plegd_relist_period_state{state="stretching"}`:                             1,
		`plegd_relist_period_state{state="stretched"}`:                              0,
		`plegd_relist_period_strikes`:                                               2,
		`plegd_relist_period_clean_relists`:                                         5,
		`plegd_relist_period_needed_relists`:                                        4,
		`plegd_condition{condition="stream_down"}`:                                  1,
		`plegd_condition{condition="relist_failing"}`:                               0,
		`plegd_sandboxes{state="ready"}`:                                            2,
		`plegd_containers{state="running"}`:                                         3,
		`plegd_containers{state="exited"}`:                                          0,
	} {
		got, ok := gather(t, reg)[series]
		if !ok || got != want {
			t.Errorf("%s is %v (there: %v), want %v", series, got, ok, want)
		}
	}
	// A stream is no call that took an hour.
	if _, ok := gather(t, reg)[`plegd_runtime_call_duration_seconds{method="GetContainerEvents"}`]; ok {
		t.Error("the event stream's length counts as a duration of a call")
	}
}

// Before the first relist there is no age; zero would be a good one.
func TestNoAgeBeforeTheFirstRelist(t *testing.T) {
	_, reg := newTest(t, Gauges{RelistAge: -1})
	if v, ok := gather(t, reg)["plegd_relist_age_seconds"]; ok {
		t.Errorf("age is %v", v)
	}
}

// Whatever a runtime answers, the number of series is bounded.
func TestLabelsAreBounded(t *testing.T) {
	m, reg := newTest(t, Gauges{})
	exercise(m)
	for i := range 1000 {
		m.CallStarted(strings.Repeat("x", i))
		m.CallDone(strings.Repeat("x", i), codes.Code(100+i), 0) //nolint:gosec // small
		m.Inspected(arbiter.ActionKind(100+i), 0, nil)           //nolint:gosec // wraps
		m.Published(&store.Event{Type: store.ContainerDied, Source: timestamps.Provenance(i)}, 1)
		m.Stepped(nil, &arbiter.Output{Anomalies: []timestamps.Anomaly{timestamps.Anomaly(100 + i)}})
	}
	if n := len(gather(t, reg)); n > 120 {
		t.Errorf("%d series", n)
	}
}

func TestZeroMetricsObservesNothing(t *testing.T) { exercise(new(Metrics)) }

// Two generators can't share a registry, and the error says so before anything
// is registered.
func TestRegisteredTwice(t *testing.T) {
	_, reg := newTest(t, Gauges{})
	before := len(gather(t, reg))
	if err := reg.Register(New(func() Gauges { return Gauges{} }, false)); err == nil {
		t.Error("no error")
	}
	if after := len(gather(t, reg)); after != before {
		t.Errorf("%d series, then %d", before, after)
	}
}

// gather returns the value of each series, of a histogram its count.
func gather(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
			}
			slices.Sort(labels)
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetCounter() != nil:
				series[name] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				series[name] = m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				series[name] = float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return series
}
