package arbiter

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// lifeOfAPod is all that can truthfully be seen of one container and its sandbox while they come to be, run
// and end: in each phase a status of either, a list, a list that was read then and answered a phase later,
// and the phase's event: with its own payload, with the one before, with the one after, and replayed late.
func lifeOfAPod() []Input {
	a := thing{kind: store.KindSandbox, id: "A", sandbox: "A", pod: "U1", state: store.StateUp, createdAt: start, ip: "10.0.0.5"}
	c := thing{kind: store.KindContainer, id: "C", sandbox: "A", pod: "U1", state: store.StateCreated, createdAt: start + second}
	w := &truth{things: map[string]thing{"A": a, "C": c}}
	phases, events := []*truth{w.snapshot()}, []transition{{EventCreated, "C"}}
	for _, step := range []struct {
		id  string
		how int
	}{{"C", 3}, {"C", 3}, {"A", 3}} {
		events = append(events, w.advance(w.things[step.id], start+int64(len(phases)+1)*second, step.how)...)
		phases = append(phases, w.snapshot())
	}
	stamp := func(phase, n int) timestamps.Stamp {
		return timestamps.Stamp{Tick: timestamps.Tick(100*phase + n), Wall: start + int64(phase+2)*second, Mono: int64(phase+2) * second}
	}
	var seen []Input
	for k, now := range phases {
		call := func(sent, answeredIn, answered int) Call {
			return Call{Sent: stamp(k, sent), Answered: stamp(answeredIn, answered)}
		}
		list := func(first, second Call) *ListSeen {
			return &ListSeen{Sandboxes: []Item{now.things["A"].listed()}, Containers: []Item{now.things["C"].listed()}, SandboxCall: first, ContainerCall: second}
		}
		event := func(payload *truth, phase, n int) *EventSeen {
			ev := payload.event(events[k], "A", start+int64(k+2)*second)
			ev.At = stamp(phase, n)
			return ev
		}
		seen = append(seen,
			&StatusSeen{Kind: store.KindContainer, ID: "C", Call: call(10, k, 11), Item: now.things["C"].status()},
			&StatusSeen{Kind: store.KindSandbox, ID: "A", Call: call(12, k, 13), Item: now.things["A"].status()},
			list(call(20, k, 21), call(22, k, 23)),
			list(call(24, k, 25), call(26, k+1, 27)),
			event(now, k, 30), event(phases[max(k-1, 0)], k, 31), event(now, k+2, 33),
			event(phases[min(k+1, len(phases)-1)], min(k+1, len(phases)-1), 32),
		)
	}
	return seen
}

// TestEveryOrderOfThreeObservations: any three truthful observations, in every order and with every
// repetition, give the same states and fields (O1, O7, F15). This is all of them, not a sample.
func TestEveryOrderOfThreeObservations(t *testing.T) {
	seen := lifeOfAPod()
	type result struct {
		fields string
		order  [3]int
	}
	results := map[[3]int]result{} // by which were seen
	runs, wrong := 0, 0
	for a := range seen {
		for b := range seen {
			for c := range seen {
				order := [3]int{a, b, c}
				got := fieldsAfter(t, seen, order)
				runs++
				key := setOfThree(order)
				first, ok := results[key]
				if !ok {
					results[key] = result{got, order}
					continue
				}
				if first.fields != got {
					if wrong++; wrong == 1 {
						t.Errorf("%v and %v differ:\n%s", first.order, order, cmp.Diff(coreAfter(seen, first.order), coreAfter(seen, order)))
					}
				}
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d orders of %d sets of observations give something else", wrong, runs, len(results))
	}
	if len(seen) < 30 {
		t.Errorf("only %d observations", len(seen))
	}
}

// setOfThree is what an order is an order of: without what was repeated, sorted.
func setOfThree(order [3]int) [3]int {
	s := order
	for i := range s { // as many as three need no better sorting
		for j := i + 1; j < len(s); j++ {
			if s[j] < s[i] {
				s[i], s[j] = s[j], s[i]
			}
		}
	}
	if s[0] == s[1] {
		s[1] = s[2]
	}
	if s[1] == s[2] {
		s[2] = -1
	}
	if s[0] == s[1] {
		s[1] = -1
	}
	return s
}

func coreAfter(seen []Input, order [3]int) map[string]store.Record {
	c := NewCore(Limits{}, "boot")
	for i, n := range order {
		c.Step(Now{Stamp: timestamps.Stamp{Tick: timestamps.Tick(10_000 + i), Wall: start, Mono: 0}}, seen[n])
	}
	return fieldsOf(c)
}

func fieldsAfter(t *testing.T, seen []Input, order [3]int) string {
	t.Helper()
	b, err := deterministic.Marshal(coreAfter(seen, order))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
