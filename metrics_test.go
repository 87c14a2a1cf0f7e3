package pleg_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// eager is a Registerer that collects as soon as it can: a scrape may come at
// any moment.
type eager struct {
	*prometheus.Registry
	t *testing.T
}

func (e eager) Register(c prometheus.Collector) error {
	if err := e.Registry.Register(c); err != nil {
		return err
	}
	if n := series(e.t, e.Registry); n == 0 {
		e.t.Error("nothing is collected")
	}
	return nil
}

// series returns how many series of plegd a registry has.
func series(t *testing.T, reg *prometheus.Registry) (n int) {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "plegd_") {
			n += len(f.GetMetric())
		}
	}
	return n
}

// TestMetricsAreThereWhileAGeneratorIs: they can be collected from the moment
// they are registered, and are gone with their generator, however it ended, so
// that the next one has room.
func TestMetricsAreThereWhileAGeneratorIs(t *testing.T) {
	_, path := simtest.Start(t, simruntime.Config{})
	for _, mode := range pleg.Modes {
		reg := eager{prometheus.NewRegistry(), t}
		cfg := pleg.Config{Endpoint: path, Mode: mode, RelistPeriod: 20 * time.Millisecond, Registerer: reg}
		for range 2 { // never run
			g, err := pleg.New(cfg)
			must(t, err)
			must(t, g.Close())
			if n := series(t, reg.Registry); n != 0 {
				t.Errorf("%s: %d series after the end", mode, n)
			}
		}
		for range 2 {
			a := startAgent(t, cfg, nil)
			a.settle()
			if _, err := pleg.New(cfg); err == nil || !strings.Contains(err.Error(), "metrics") {
				t.Errorf("%s: a second generator beside the first: %v", mode, err)
			}
			if n := series(t, reg.Registry); n == 0 {
				t.Errorf("%s: the second generator took the metrics of the first", mode)
			}
			a.finish()
		}
		bad := cfg
		bad.StateDir = "/proc/plegd"
		if _, err := pleg.New(bad); err == nil {
			t.Fatal("no error")
		}
		cfg.StateDir = filepath.Join(t.TempDir(), "state")
		g, err := pleg.New(cfg)
		must(t, err)
		must(t, g.Close())
	}
}
