package arbiter

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/plegd/plegd/store"
)

// TestOrderDoesNotMatter: without lowerings and removals every order and
// duplication of the same truthful observations gives the same states and
// fields (O1, O7, T1, T2).
func TestOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seen := observations(t)
		one, two := newRig(Limits{}), newRig(Limits{})
		one.tick, two.tick = 10_000, 10_000
		for _, in := range seen {
			one.step(in)
		}
		for _, i := range rapid.Permutation(twice(len(seen))).Draw(t, "order") {
			two.step(seen[i%len(seen)])
		}
		if diff := cmp.Diff(fieldsOf(one.core), fieldsOf(two.core)); diff != "" {
			for _, in := range seen {
				t.Logf("%s", describe(in))
			}
			t.Fatalf("order matters: %s", diff)
		}
		noFaults(t, one)
		noFaults(t, two)
	})
}

// twice is each index once, and again for a duplicate.
func twice(n int) []int {
	list := make([]int, 2*n)
	for i := range list {
		list[i] = i
	}
	return list
}

// fields are what must not depend on the order.
func fieldsOf(c *Core) map[string]store.Record {
	m := map[string]store.Record{}
	for id, e := range c.ents {
		r := e.rec
		m[id] = store.Record{
			Kind: r.Kind, ID: r.ID, Sandbox: r.Sandbox, Identity: r.Identity, Incarnation: r.Incarnation, State: r.State,
			Reported: r.Reported, CreatedAt: r.CreatedAt, StartedAt: r.StartedAt, Exit: r.Exit, IPs: r.IPs,
			Started: r.Started, Rest: r.Rest, Known: r.Known,
		}
	}
	return m
}

// observations is what can truthfully be seen of a few things that come to be
// and end but are not removed: events with payloads ahead of their type or
// behind it, lists and inspections over the changes.
func observations(t *rapid.T) []Input {
	r := newRig(Limits{})
	w := &truth{things: map[string]thing{}}
	var seen []Input
	var open []*call
	for range rapid.IntRange(3, 25).Draw(t, "steps") {
		r.pass(second)
		switch rapid.IntRange(0, 5).Draw(t, "step") {
		case 0, 1:
			before := w.snapshot()
			told := w.change(t, r.wall)
			for _, tr := range told {
				if tr.kind == EventDeleted {
					w = before.snapshot()
					continue
				}
				payload, sandbox := w, w.things[tr.id].sandbox
				if _, ok := before.things[sandbox]; ok && rapid.IntRange(0, 3).Draw(t, "behind") == 0 {
					payload = before
				}
				ev := payload.event(tr, sandbox, r.wall)
				ev.At = r.stamp()
				seen = append(seen, ev)
			}
		case 2:
			open = append(open, r.newCall(ActionKey{Kind: ActList}))
		case 3:
			if ids := sortedKeys(w.things); len(ids) > 0 {
				open = append(open, r.newCall(ActionKey{ActStatus, rapid.SampledFrom(ids).Draw(t, "id")}))
			}
		default:
			if len(open) == 0 {
				continue
			}
			i := rapid.IntRange(0, len(open)-1).Draw(t, "call")
			if in := r.advance(w, open[i]); in != nil {
				seen = append(seen, in)
				open = slices.Delete(open, i, i+1)
			}
		}
	}
	return seen
}

func noFaults(t *rapid.T, r *rig) {
	t.Helper()
	for _, f := range r.faults {
		t.Fatal(f)
	}
}

// TestConvergence: after any storm and then quiet, two relists and due
// inspections, the records equal the truth, and nothing was told twice or out
// of order, over restarts too (the promise of docs/design.md; O1 to O9, D1).
func TestConvergence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStorm(Limits{}, 1000)
		if rapid.IntRange(0, 3).Draw(t, "tight") == 0 {
			// What lies removed and was then forgotten is told anew, so: no lies.
			s = newStorm(Limits{Tombstones: 1, TombstoneAge: 30 * second}, 0)
		}
		if rapid.IntRange(0, 3).Draw(t, "big") == 0 { // large enough for a mass loss (O4)
			s.world.room = 12
			for range 40 {
				s.happen(t)
			}
		}
		for range rapid.IntRange(10, 120).Draw(t, "length") {
			s.blow(t)
		}
		s.settle(t)
		if diff := s.world.differs(s.core); diff != "" {
			s.fail(t, diff)
		}
		if len(s.faults) > 0 {
			s.fail(t, s.faults[0])
		}
	})
}

// TestOneLieChangesNothing: whatever one wrong answer or one false event says,
// nothing that exists is told removed, nothing returns to an earlier state,
// and nothing that lives is told dead (O1, O3, O4).
func TestOneLieChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStorm(Limits{}, 1)
		for range rapid.IntRange(10, 120).Draw(t, "length") {
			from := len(s.mem.events)
			s.blow(t)
			for _, ev := range s.mem.events[min(from, len(s.mem.events)):] {
				x, exists := s.world.things[eventID(&ev)]
				state := stateOf[ev.Type]
				if ev.Change == store.ChangeRegressed || exists && state > x.state {
					s.fail(t, "a lie was believed: "+printEvent(&ev))
				}
			}
		}
		noFaults(t, s.rig)
	})
}

// TestStepIsDeterministic: the same state and the same input give the same
// output, and a step never touches what it shares with a clone (O9, core.go).
func TestStepIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newStorm(Limits{}, 1000)
		s.strict = true
		if rapid.Bool().Draw(t, "digest") {
			s.core.Digest()
		}
		for range rapid.IntRange(10, 60).Draw(t, "length") {
			s.blow(t)
		}
		noFaults(t, s.rig)
	})
}
