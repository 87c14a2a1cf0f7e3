package compare_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/store"
)

// node is what a drawn node did, told without fault.
func node(t *rapid.T) (events []compare.Event, raws []compare.Raw) {
	for i := range rapid.IntRange(1, 12).Draw(t, "containers") {
		id := fmt.Sprintf("c%d", i)
		at := rapid.Int64Range(from-second, to).Draw(t, "begin")
		status := compare.Raw{Via: compare.ViaStatus, ID: id, Kind: "container", Sandbox: "s", Pod: web}
		told := at
		for _, typ := range compare.Types[4 : 4+rapid.IntRange(1, 4).Draw(t, "steps")] {
			at += rapid.Int64Range(0, 2*second).Draw(t, "pause")
			told = max(told, at) + rapid.Int64Range(0, int64(compare.DefaultLate)/8).Draw(t, "delay")
			e := compare.Event{At: told, Type: typ, ID: id, Sandbox: "s", Pod: web, Name: "app"}
			switch typ {
			case store.ContainerCreated:
				e.OccurredAt, status.CreatedAt, status.Says = at, at, "CREATED"
			case store.ContainerStarted:
				e.OccurredAt, status.StartedAt, status.Says = at, at, "RUNNING"
			case store.ContainerDied:
				e.OccurredAt, e.ExitKnown, e.ExitCode = at, true, int32(i)
				status.FinishedAt, status.ExitCode, status.Says = at, int32(i), "EXITED"
			default:
				raws = append(raws, compare.Raw{At: told, Via: compare.ViaEvent, ID: id, Says: "DELETED", EventAt: at})
			}
			if typ != store.ContainerRemoved {
				status.At = told
				raws = append(raws, status)
			}
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b compare.Event) int { return int(a.At - b.At) })
	slices.SortStableFunc(raws, func(a, b compare.Raw) int { return int(a.At - b.At) })
	return events, raws
}

// A mode that tells everything once, right and soon is found to have no fault,
// alone and beside others; and each fault that is put in is found, in that mode only.
func TestNoFaultIsFoundWhereThereIsNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events, raws := node(t)
		alone := judge(trace("hybrid", events, raws...))
		if m := alone.Modes[0]; len(m.Findings) > 0 || m.Told != m.Judged || len(alone.Transitions) != m.Judged {
			t.Fatalf("%+v", m.Findings)
		}
		if len(alone.Transitions) == 0 {
			return
		}
		x := alone.Transitions[rapid.IntRange(0, len(alone.Transitions)-1).Draw(t, "victim")]
		i := slices.IndexFunc(events, func(e compare.Event) bool { return e.ID == x.ID && e.Type == x.Type })
		lost := slices.Delete(slices.Clone(events), i, i+1)
		twice := append(slices.Clone(events), events[i])
		twice[len(events)].At = to
		for name, c := range map[string]struct {
			events []compare.Event
			fault  compare.Fault
		}{"lost": {lost, compare.Missed}, "twice": {twice, compare.Duplicated}} {
			r := judge(trace("hybrid", events, raws...), trace("evented", c.events, raws...))
			f := r.Modes[1].Findings
			if len(r.Modes[0].Findings) != 0 || len(f) != 1 || f[0].Fault != c.fault || f[0].ID != x.ID || f[0].Type != x.Type {
				if name == "twice" && events[i].At > to { // told after the measurement: no part of it
					continue
				}
				t.Fatalf("%s %s of %s: %+v, %+v", name, x.Type, x.ID, r.Modes[0].Findings, f)
			}
		}
	})
}
