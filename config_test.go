package pleg_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// TestConfigContradictions: each gives one error that names the field and says
// what is allowed, before anything is touched.
func TestConfigContradictions(t *testing.T) {
	tests := map[string]struct {
		change func(c *pleg.Config)
		field  string
	}{
		"no endpoint":              {func(c *pleg.Config) { c.Endpoint = "" }, "Endpoint"},
		"relative endpoint":        {func(c *pleg.Config) { c.Endpoint = "run/x.sock" }, "Endpoint"},
		"endpoint over TCP":        {func(c *pleg.Config) { c.Endpoint = "tcp://localhost:1" }, "Endpoint"},
		"unknown mode":             {func(c *pleg.Config) { c.Mode = "both" }, "Mode"},
		"negative period":          {func(c *pleg.Config) { c.RelistPeriod = -1 }, "RelistPeriod"},
		"tiny period":              {func(c *pleg.Config) { c.RelistPeriod = time.Millisecond }, "RelistPeriod"},
		"longest below base":       {func(c *pleg.Config) { c.RelistPeriod, c.RelistPeriodMax = 2*time.Second, time.Second }, "RelistPeriodMax"},
		"negative longest":         {func(c *pleg.Config) { c.RelistPeriodMax = -time.Second }, "RelistPeriodMax"},
		"negative threshold":       {func(c *pleg.Config) { c.RelistThreshold = -1 }, "RelistThreshold"},
		"negative timeout":         {func(c *pleg.Config) { c.RPCTimeout = -time.Second }, "RPCTimeout"},
		"tiny timeout":             {func(c *pleg.Config) { c.RPCTimeout = time.Microsecond }, "RPCTimeout"},
		"negative inspections":     {func(c *pleg.Config) { c.MaxInspections = -1 }, "MaxInspections"},
		"too many inspections":     {func(c *pleg.Config) { c.MaxInspections = 10_000 }, "MaxInspections"},
		"negative commit rate":     {func(c *pleg.Config) { c.CommitRate = -1 }, "CommitRate"},
		"commit rate not a number": {func(c *pleg.Config) { c.CommitRate = math.NaN() }, "CommitRate"},
		"negative retention":       {func(c *pleg.Config) { c.Retention = store.Retention{Entries: -1} }, "Retention"},
		"journal above file":       {func(c *pleg.Config) { c.Retention = store.Retention{Bytes: store.DefaultMaxSize} }, "Retention.Bytes"},
		"half a clock":             {func(c *pleg.Config) { c.Clock = timestamps.Clock{Wall: time.Now} }, "Clock"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := pleg.Config{Endpoint: "/run/none.sock", StateDir: t.TempDir() + "/state"}
			tt.change(&cfg)
			_, err := pleg.New(cfg)
			var ce *pleg.ConfigError
			if !errors.Is(err, pleg.ErrConfig) || !errors.As(err, &ce) {
				t.Fatalf("error %v", err)
			}
			if ce.Field != tt.field || ce.Reason == "" || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q about %s, want %s", err, ce.Field, tt.field)
			}
			if err := cfg.Validate(); err == nil {
				t.Error("Validate allows what New refuses")
			}
		})
	}
}

// TestStateErrors: what is wrong with the state directory is told apart.
func TestStateErrors(t *testing.T) {
	dir := t.TempDir()
	cfg := pleg.Config{Endpoint: "/run/none.sock", StateDir: dir, NodeName: "one"}
	g, err := pleg.New(cfg)
	must(t, err)
	if _, err := pleg.New(cfg); !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("locked: %v", err)
	}
	must(t, g.Close())
	// A runtime has answered once.
	b, _, err := store.OpenBolt(store.BoltConfig{Dir: dir})
	must(t, err)
	meta := store.Meta{Epoch: timestamps.Epoch{1}, Runtime: store.RuntimeID{Endpoint: cfg.Endpoint, Node: cfg.NodeName, Name: "containerd"}}
	must(t, errors.Join(b.Commit(&store.Batch{Meta: meta}), b.Close()))
	cfg.NodeName = "two"
	if _, err := pleg.New(cfg); !errors.Is(err, store.ErrForeign) {
		t.Errorf("of another node: %v", err)
	}
	cfg.NodeName, cfg.Endpoint = "one", "/run/other.sock"
	if _, err := pleg.New(cfg); !errors.Is(err, store.ErrForeign) {
		t.Errorf("of another socket: %v", err)
	}
	cfg.StateDir = "/proc/plegd"
	if _, err := pleg.New(cfg); !errors.Is(err, store.ErrUnwritable) {
		t.Errorf("unwritable: %v", err)
	}
}

// TestUpdatePeriods: what New refuses is refused here too, and changes nothing.
func TestUpdatePeriods(t *testing.T) {
	g, err := pleg.New(pleg.Config{Endpoint: "/run/none.sock"})
	must(t, err)
	defer g.Close()
	for _, bad := range [][2]time.Duration{{0, 0}, {time.Nanosecond, time.Nanosecond}, {2 * time.Second, time.Second}} {
		if err := g.UpdatePeriods(bad[0], bad[1]); !errors.Is(err, pleg.ErrConfig) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if p := g.Status().Relist.Period; p != 1 {
		t.Errorf("period %v s", p)
	}
	for _, base := range []time.Duration{2 * time.Second, 10 * time.Minute} { // above the threshold too: that is added to it
		must(t, g.UpdatePeriods(base, time.Hour))
		if p := g.Status().Relist.Period; p != base.Seconds() {
			t.Errorf("period %v s", p)
		}
	}
}

// TestPeriodMayExceedTheThreshold, since what may be old is both together.
func TestPeriodMayExceedTheThreshold(t *testing.T) {
	for name, c := range map[string]pleg.Config{
		"default threshold": {Endpoint: "/run/none.sock", RelistPeriod: 5 * time.Minute},
		"tiny threshold":    {Endpoint: "/run/none.sock", RelistThreshold: time.Nanosecond},
	} {
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
