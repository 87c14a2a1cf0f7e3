package sim_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/plegd/plegd/internal/oracletest"
	"github.com/plegd/plegd/store"
)

// tampered are seeds in which nothing was seen but lost with a kill, so whatever is
// missing from the journal is to be noticed. Between them they have lies, a kill, a bad
// disk, and runtimes with and without events.
var tampered = []uint64{3, 7, 9, 18, 22}

// TestOracleNoticesATamperedJournal: the oracle finds nothing wrong with what a seed
// told, and something wrong with each copy of it in which one event is missing, told
// twice, in another place, or says something else than what was.
func TestOracleNoticesATamperedJournal(t *testing.T) {
	for _, seed := range tampered {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := simulate(t, seed)
			if len(w.bad) > 0 {
				t.Fatalf("seed %d is wrong as it is: %v", seed, w.bad)
			}
			all := w.main.events
			if bad := w.judge(all).bad; len(bad) > 0 {
				t.Fatalf("judged again: %v", bad)
			}
			tried := map[string]int{}
			for i := range all {
				if i%50 == 0 {
					runtime.GC() // which TestSim turns off
				}
				for name, other := range tamper(all, i) {
					tried[name]++
					if len(w.judge(other, all[i].EntityID()).bad) == 0 {
						t.Errorf("%s is not noticed: %v %s %s of %s", name, all[i].Position, all[i].Type, all[i].Change, short(all[i].EntityID()))
					}
				}
			}
			for _, name := range []string{"drop", "swap", "repeat", "other code", "other end", "other start", "other reason", "other pod", "other sandbox", "other address", "told too early", "return", "unknown"} {
				if tried[name] == 0 {
					t.Errorf("%s was never tried", name)
				}
			}
			t.Logf("%d events: %v", len(all), tried)
		})
	}
}

// tamper returns copies of what was told in which event i is not as it was.
func tamper(all []told, i int) map[string][]told {
	ev := all[i]
	if ev.EntityID() == "" {
		return nil
	}
	out := map[string][]told{}
	with := func(name string, change func(*told)) {
		other := slices.Clone(all)
		change(&other[i])
		out[name] = other
	}
	if oracletest.Rank(ev.Event) > 0 {
		next := slices.IndexFunc(all[i+1:], func(x told) bool {
			return x.EntityID() == ev.EntityID() && oracletest.Rank(x.Event) > 0
		})
		// Of a sandbox that was seen ready and not ready in one instant nobody knows
		// which came first.
		if ev.Type != store.SandboxReady || next < 0 || all[i+1+next].read.After(ev.read) {
			out["drop"] = slices.Delete(slices.Clone(all), i, i+1)
		}
		out["repeat"] = slices.Insert(slices.Clone(all), i, ev)
		if next >= 0 {
			other := slices.Clone(all)
			other[i], other[i+1+next] = other[i+1+next], other[i]
			out["swap"] = other
		}
		with("told too early", func(x *told) { x.read = x.read.AddDate(-1, 0, 0) })
		with("return", func(x *told) {
			x.Change, x.State = store.ChangeRegressed, "created"
			x.Type = store.ContainerChanged
		})
		with("unknown", func(x *told) { x.Change, x.Type = store.ChangeUnknown, store.ContainerChanged })
	}
	with("other pod", func(x *told) { x.Pod.UID += "'" })
	with("other sandbox", func(x *told) { x.SandboxID = "another" })
	if ev.Container.ID == "" {
		delete(out, "other sandbox") // it would be another entity
	}
	if ev.Pod.IP != "" {
		with("other address", func(x *told) { x.Pod.IP = "192.0.2.1" })
	}
	if ev.ExitKnown {
		with("other code", func(x *told) { x.ExitCode++ })
		with("other end", func(x *told) { x.OccurredAt++ })
		with("other reason", func(x *told) { x.Reason += "'" })
	}
	if ev.Type == store.ContainerStarted && ev.OccurredAt != 0 {
		with("other start", func(x *told) { x.OccurredAt++ })
	}
	return out
}
