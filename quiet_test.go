package pleg_test

import (
	"sync/atomic"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

// counting counts the commits of a store.
type counting struct {
	store.Store
	commits atomic.Int64
}

func (c *counting) Commit(b *store.Batch) error {
	c.commits.Add(1)
	return c.Store.Commit(b)
}

// TestIdleCostsTwoListsAPeriod: an agent with nothing to tell makes two list
// calls a period and nothing else: no status call, no commit (D1).
func TestIdleCostsTwoListsAPeriod(t *testing.T) {
	t.Parallel()
	for _, mode := range []pleg.Mode{pleg.ModeHybrid, pleg.ModeGeneric} {
		t.Run(string(mode), func(t *testing.T) {
			rt, path := simtest.Start(t, simruntime.Config{Seed: 10})
			for _, name := range []string{"a", "b", "c"} {
				_, id := pod(t, rt, name)
				if name == "c" {
					must(t, rt.ExitContainer(id, 1, ""))
				}
			}
			c := new(counting)
			cfg := pleg.Config{Endpoint: path, StateDir: t.TempDir(), Mode: mode, RelistPeriod: 50 * time.Millisecond, RelistPeriodMax: 50 * time.Millisecond}
			a := startAgent(t, pleg.WithStore(cfg, func(s store.Store) store.Store { c.Store = s; return c }), nil)
			if mode == pleg.ModeHybrid {
				a.streamUp()
			}
			a.settle()
			before, commits := len(rt.Calls()), c.commits.Load()
			count := func() map[string]int {
				m := map[string]int{}
				for _, call := range rt.Calls()[before:] {
					m[call.Method]++
				}
				return m
			}
			waitFor(t, "20 periods", func() bool { return count()["StreamContainers"] >= 20 })
			if n := c.commits.Load() - commits; n != 0 {
				t.Errorf("%d commits in 20 idle periods", n)
			}
			m := count()
			sandboxes, containers := m["StreamPodSandboxes"], m["StreamContainers"]
			if len(m) != 2 || sandboxes < containers || sandboxes > containers+1 {
				t.Errorf("calls %v, want two lists a period and no other", m)
			}
			a.finish()
		})
	}
}

// TestSubscriberThatNeverReads delays nothing and nobody.
func TestSubscriberThatNeverReads(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{Seed: 11})
	a := startAgent(t, pleg.Config{Endpoint: path, RelistPeriod: 50 * time.Millisecond}, nil)
	a.streamUp()
	idle, err := a.g.Subscribe(nil)
	must(t, err)
	workload(t, rt, 11, 300, time.Millisecond)
	a.settle()
	a.toldHistory(rt)
	if stats := rt.EventStats(); stats.Overflowed != 0 {
		t.Errorf("the stream was read too slowly: %+v", stats)
	}
	// And it still gets everything.
	n := 0
	for ; idle.Position() != a.g.Position(); n++ {
		if _, err := idle.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n != len(a.events) {
		t.Errorf("it got %d events, the other reader %d", n, len(a.events))
	}
	a.finish()
}

// TestHungInspectionDelaysNobody: the status of one pod hangs, and ignores
// that it is called off; what happens to others is told all the same.
func TestHungInspectionDelaysNobody(t *testing.T) {
	t.Parallel()
	rt, path := simtest.Start(t, simruntime.Config{Seed: 12})
	_, stuck := pod(t, rt, "stuck")
	_, other := pod(t, rt, "other")
	rule := simtest.Rule(t, rt, simruntime.Rule{Method: "ContainerStatus", ID: stuck, Hang: true, IgnoreCancel: true})
	a := startAgent(t, pleg.Config{Endpoint: path, Mode: pleg.ModeGeneric, RelistPeriod: 50 * time.Millisecond, RPCTimeout: 500 * time.Millisecond, MaxInspections: 1}, nil)
	waitFor(t, "the other pod", func() bool { return cached(a.g)[other] == "running" })
	must(t, rt.ExitContainer(other, 4, ""))
	waitFor(t, "the other pod's end", func() bool {
		p, err := a.g.Pod("uid-other")
		return err == nil && p.Containers[0].ExitCode != nil && *p.Containers[0].ExitCode == 4
	})
	waitFor(t, "word of the stuck pod", func() bool {
		p, err := a.g.Pod("uid-stuck")
		return err == nil && len(p.Containers) == 1 && p.Containers[0].Error != "" && p.Containers[0].State == "running"
	})
	for _, c := range a.g.Health().Checks {
		if c.Name == pleg.CheckInspections && (c.OK || !c.Ready) {
			t.Errorf("health says %+v", c)
		}
	}
	if !a.g.Health().Ready {
		t.Errorf("one pod makes the node not ready: %+v", a.g.Health())
	}
	rule.Remove()
	a.settle()
	a.agree(rt)
	a.finish()
}
