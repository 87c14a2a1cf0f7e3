package pleg_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// gauges reads the gauges of a registry, by name and the value of their label.
func gauges(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetGauge().GetValue()
		}
	}
	return values
}

// TestPeriodIsVisible: status, health and metrics agree on the state machine of
// the adaptive period, and the kubelet's metric of when PLEG was last seen
// follows the period, since alerts on it were made for one of a second.
func TestPeriodIsVisible(t *testing.T) {
	t.Parallel()
	inBubble(t, simruntime.Config{Seed: 52}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
		reg := prometheus.NewPedanticRegistry()
		cfg.Registerer, cfg.KubeletMetrics = reg, true
		_, container := pod(t, rt, "a")
		a := startAgent(t, cfg, nil)
		expect := func(state string) pleg.RelistStatus {
			t.Helper()
			s, g := a.g.Status().Relist, gauges(t, reg)
			if s.State != state {
				t.Errorf("state %q, want %q", s.State, state)
			}
			for _, name := range []string{"polling", "proving", "stretching", "stretched"} {
				if got := g["plegd_relist_period_state "+name] == 1; got != (name == s.State) {
					t.Errorf("in state %s the metric of %s is %v", s.State, name, got)
				}
			}
			if g["plegd_relist_period_strikes"] != float64(s.Strikes) || g["plegd_relist_period_clean_relists"] != float64(s.Clean) ||
				g["plegd_relist_period_needed_relists"] != float64(s.Needed) || g["plegd_relist_period_seconds"] != s.Period {
				t.Errorf("status %+v, metrics %v", s, g)
			}
			if c := a.check(pleg.CheckRelist); c.OK && !strings.Contains(c.Reason, ", "+state) {
				t.Errorf("health says %q", c.Reason)
			}
			return s
		}
		seen := func() time.Duration {
			return time.Since(time.Unix(int64(gauges(t, reg)["kubelet_pleg_last_seen_seconds"]), 0)).Truncate(time.Second)
		}

		time.Sleep(time.Hour)
		if s := expect("stretched"); s.Period != 300 || s.Strikes != 0 || s.Needed != 1 || s.Clean < 8 {
			t.Errorf("after an hour: %+v", s)
		}
		for range 10 { // the last list is up to five minutes old
			time.Sleep(time.Minute)
			if d := seen(); d > time.Second {
				t.Errorf("in a stretched period PLEG was last seen %v ago", d)
			}
		}

		drop := simtest.Rule(t, rt, simruntime.Rule{Method: simruntime.MethodEvent, Drop: true})
		must(t, rt.ExitContainer(container, 1, ""))
		waitBubble(t, "a strike", func() bool { return a.g.Status().Relist.Strikes == 1 })
		if s := expect("proving"); s.Needed != 2 || s.Clean != 0 || s.Period != 1 {
			t.Errorf("after a miss: %+v", s)
		}
		if c := a.check(pleg.CheckRelist); !strings.Contains(c.Reason, "period 1s, proving, clean relists in a row: 0 of the 2 needed, strikes 1") {
			t.Errorf("health says %q", c.Reason)
		}
		drop.Remove()
		time.Sleep(time.Hour)
		s := expect("stretched")
		if c := a.check(pleg.CheckRelist); !strings.HasSuffix(c.Reason, fmt.Sprintf(", period 5m0s, stretched, clean relists in a row: %d", s.Clean)) {
			t.Errorf("health says %q", c.Reason)
		}

		rt.Down()
		time.Sleep(time.Minute)
		expect("polling")
		time.Sleep(30 * time.Minute)
		if d := seen(); d < 25*time.Minute {
			t.Errorf("of a runtime that is down PLEG was last seen %v ago", d)
		}
		rt.Up()
		time.Sleep(time.Minute)
		if d := seen(); d > 2*time.Second {
			t.Errorf("of a runtime that is back PLEG was last seen %v ago", d)
		}
		a.finish()
	})
}

// waitBubble is waitFor in virtual time.
func waitBubble(t *testing.T, what string, met func() bool) {
	t.Helper()
	for range 3600 {
		if met() {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatalf("waited in vain for %s", what)
}
