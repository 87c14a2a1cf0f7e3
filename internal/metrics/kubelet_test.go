package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// kubelets are the kubelet's families of a registry.
func kubelets(t *testing.T, reg prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*dto.MetricFamily{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "kubelet_") {
			found[f.GetName()] = f
		}
	}
	return found
}

// value is the value of a gauge or counter, the count of a histogram; of the
// metric with a label's value, "" for the only one.
func value(t *testing.T, f *dto.MetricFamily, label string) float64 {
	t.Helper()
	for _, m := range f.GetMetric() {
		if label != "" && m.GetLabel()[0].GetValue() != label {
			continue
		}
		return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	t.Errorf("%s has no %q", f.GetName(), label)
	return 0
}

// TestKubeletMetrics plays a scenario on a simulated runtime and reads it from
// the kubelet's metrics, whose names, types, labels and buckets are compared
// with a golden file: they are what dashboards were made for.
func TestKubeletMetrics(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{Seed: 1})
	reg := prometheus.NewPedanticRegistry()
	gen, err := pleg.New(pleg.Config{Endpoint: path, RelistPeriod: 50 * time.Millisecond, Registerer: reg, KubeletMetrics: true})
	if err != nil {
		t.Fatal(err)
	}
	if seen := value(t, kubelets(t, reg)["kubelet_pleg_last_seen_seconds"], ""); seen != 0 {
		t.Errorf("seen at %v before the first relist", seen)
	}
	started := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- gen.Run(ctx) }()
	await := func(what string, met func() bool) {
		t.Helper()
		for !met() {
			if ctx.Err() != nil {
				t.Fatalf("waited in vain for %s", what)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	await("the stream", func() bool { return gen.Status().Stream.State == "up" })
	simtest.Rule(t, rt, simruntime.Rule{Method: "GetContainerEvents", Code: codes.Unavailable, Times: 2})
	rt.EndStreams(codes.Unavailable) // one end, and two tries that are refused
	await("the stream again", func() bool { return gen.Status().Stream.Reconnects == 1 })

	for _, name := range []string{"web", "db", "job"} {
		pod, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: name, UID: name})
		if err != nil {
			t.Fatal(err)
		}
		app, err := rt.CreateContainer(pod, simruntime.ContainerSpec{Name: "app"})
		for _, step := range []func() error{func() error { return err }, func() error { return rt.StartContainer(app) }} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := rt.CreateContainer(pod, simruntime.ContainerSpec{Name: "waits"}); err != nil {
			t.Fatal(err)
		}
		if name == "job" {
			if err := errors.Join(rt.ExitContainer(app, 0, ""), rt.StopPodSandbox(pod)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := gen.PodNewer(ctx, "web"); err != nil { // a look at one pod
		t.Fatal(err)
	}
	if err := gen.Relist(ctx); err != nil {
		t.Fatal(err)
	}
	await("what was played", func() bool {
		p, err := gen.Pod("job")
		return err == nil && len(p.Containers) == 2 && p.Sandboxes[0].State == "notready"
	})

	found := kubelets(t, reg)
	for name, want := range map[string]float64{
		"kubelet_running_pods":                            2,
		"kubelet_running_containers created":              3,
		"kubelet_running_containers running":              2,
		"kubelet_running_containers exited":               1,
		"kubelet_running_containers unknown":              0,
		"kubelet_pleg_discard_events":                     0,
		"kubelet_evented_pleg_connection_error_count":     3,
		"kubelet_evented_pleg_connection_success_count":   2,
		"kubelet_evented_pleg_connection_latency_seconds": float64(gen.Status().Stream.Events),
		"kubelet_pleg_pod_relist_duration_seconds":        -1,
		"kubelet_pleg_relist_duration_seconds":            -1,
		"kubelet_pleg_relist_interval_seconds":            -1,
		"kubelet_pleg_last_seen_seconds":                  -2,
	} {
		family, label, _ := strings.Cut(name, " ")
		if found[family] == nil {
			t.Errorf("no %s", family)
			continue
		}
		got := value(t, found[family], label)
		switch {
		case want == -1 && got < 1:
			t.Errorf("%s was never observed", name)
		case want == -2 && (got < float64(started.Unix()) || got > float64(time.Now().Unix())):
			t.Errorf("%s is %v, not between the start %v and now", name, got, started.Unix())
		case want >= 0 && got != want:
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	goldenKubelet(t, found)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// goldenKubelet compares the shape.
func goldenKubelet(t *testing.T, found map[string]*dto.MetricFamily) {
	t.Helper()
	var b strings.Builder
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		f := found[name]
		fmt.Fprintf(&b, "%s %s\n    %s\n", name, strings.ToLower(f.GetType().String()), f.GetHelp())
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				fmt.Fprintf(&b, "    %s=%s\n", l.GetName(), l.GetValue())
			}
			for _, bucket := range m.GetHistogram().GetBucket() {
				fmt.Fprintf(&b, "    le %v\n", bucket.GetUpperBound())
			}
		}
	}
	golden := filepath.Join("testdata", "kubelet.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("(-want +got), -update accepts it:\n%s", diff)
	}
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.Contains(string(doc), "| `"+name+"` | "+strings.ToLower(found[name].GetType().String())+" |") {
			t.Errorf("docs/reference.md lacks %s", name)
		}
	}
}

// TestKubeletMetricsLint: three names break the rules for counters, as they do
// upstream, and nothing else does.
func TestKubeletMetricsLint(t *testing.T) {
	_, path := simtest.Start(t, simruntime.Config{})
	reg := prometheus.NewPedanticRegistry()
	gen, err := pleg.New(pleg.Config{Endpoint: path, Registerer: reg, KubeletMetrics: true})
	if err != nil {
		t.Fatal(err)
	}
	defer gen.Close()
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, p.Metric+": "+p.Text)
	}
	want := []string{ // counters that Kubernetes named so
		`kubelet_evented_pleg_connection_error_count: counter metrics should have "_total" suffix`,
		`kubelet_evented_pleg_connection_error_count: non-histogram and non-summary metrics should not have "_count" suffix`,
		`kubelet_evented_pleg_connection_success_count: counter metrics should have "_total" suffix`,
		`kubelet_evented_pleg_connection_success_count: non-histogram and non-summary metrics should not have "_count" suffix`,
		`kubelet_pleg_discard_events: counter metrics should have "_total" suffix`,
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
