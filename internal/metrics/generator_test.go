package metrics_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden compares what a generator exports, but for values and labels that
// depend on the machine, with a golden file: a metric that changes its name,
// type, labels or help breaks somebody's dashboard.
func TestGolden(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{Seed: 1})
	reg := prometheus.NewPedanticRegistry()
	gen, err := pleg.New(pleg.Config{Endpoint: path, StateDir: t.TempDir(), RelistPeriod: 50 * time.Millisecond, Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := gen.Subscribe(nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- gen.Run(ctx) }()

	pod, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: "web", UID: "u1"})
	if err != nil {
		t.Fatal(err)
	}
	app, err := rt.CreateContainer(pod, simruntime.ContainerSpec{Name: "app"})
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.StartContainer(app); err != nil {
		t.Fatal(err)
	}
	if err := rt.ExitContainer(app, 7, ""); err != nil {
		t.Fatal(err)
	}
	for {
		ev, err := sub.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == store.ContainerDied {
			break
		}
	}
	if err := gen.Relist(ctx); err != nil {
		t.Fatal(err)
	}
	got := shape(t, reg)
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	golden := filepath.Join("testdata", "metrics.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got), -update accepts it:\n%s", diff)
	}
}

// shape is one line for each metric: name, type, names of labels, help.
func shape(t *testing.T, reg prometheus.Gatherer) string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		var labels []string
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(labels, l.GetName()) {
					labels = append(labels, l.GetName())
				}
			}
		}
		slices.Sort(labels)
		fmt.Fprintf(&b, "%s{%s} %s\n    %s\n", f.GetName(), strings.Join(labels, ","), strings.ToLower(f.GetType().String()), f.GetHelp())
	}
	return b.String()
}

// The documentation lists every metric with its help.
func TestReferenceIsComplete(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile(filepath.Join("testdata", "metrics.golden"))
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	for line := range strings.Lines(string(golden)) {
		if help, ok := strings.CutPrefix(line, "    "); ok {
			if !strings.Contains(string(doc), "| `"+name+"` |") || !strings.Contains(string(doc), "| "+strings.TrimSpace(help)+" |") {
				t.Errorf("docs/reference.md lacks %s, or its help", name)
			}
			continue
		}
		name, _, _ = strings.Cut(line, "{")
	}
}
