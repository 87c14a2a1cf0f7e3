package compare_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/store"
)

// costing is a mode that told life so long after it, and made so many calls.
func costing(mode string, events []compare.Event, calls uint64) *compare.Trace {
	t := trace(mode, events, lifeSaid()...)
	for s := int64(9); s <= 21; s++ {
		t.Samples = append(t.Samples, compare.Sample{At: s * second, RSS: 1, CPU: s, Calls: map[string]compare.Calls{"ListContainers": {Calls: calls * uint64(s)}}})
	}
	return t
}

// Fewest missed and wrong, then the shortest time with a wrong state, then the
// fewest calls.
func TestWinner(t *testing.T) {
	for _, tc := range []struct {
		name            string
		generic, hybrid *compare.Trace
		want            string
	}{
		{"misses less", costing("generic", life(900*ms), 9), costing("hybrid", life(ms)[1:], 1), "generic"},
		{"tells sooner", costing("generic", life(900*ms), 1), costing("hybrid", life(ms), 9), "hybrid"},
		{"as soon, and asks less", costing("generic", life(3*ms), 1), costing("hybrid", life(ms), 9), "generic"},
		{"the same", costing("generic", life(ms), 1), costing("hybrid", life(ms), 1), "generic"},
		{"hardly more calls", costing("generic", life(ms), 100), costing("hybrid", life(ms), 99), "generic"},
	} {
		if r := judge(tc.generic, tc.hybrid); r.Winner != tc.want || !slices.ContainsFunc(r.Verdict, func(s string) bool { return strings.HasPrefix(s, "Best for this node: "+tc.want) }) {
			t.Errorf("%s: winner %q, verdict %q", tc.name, r.Winner, r.Verdict)
		}
	}
	if r := judge(trace("generic", nil), trace("hybrid", nil)); r.Winner != "" {
		t.Errorf("%s wins where nothing happened", r.Winner)
	}
}

// The verdict says who is better at what, by how much, and where hybrid is not.
func TestVerdict(t *testing.T) {
	r := judge(costing("generic", life(800*ms), 6), costing("hybrid", life(2 * ms)[1:], 4), costing("evented", life(2*ms), 1))
	want := []string{
		"generic and evented told all 4 transitions, each in time and right; hybrid missed 1 (25 %).",
		"Fastest to tell: hybrid (2ms) and evented (2ms); generic 800ms, 400 times as much.",
		"Shortest time with a wrong state: evented (8ms); generic 3.2s, 400 times as much; hybrid 1.01s, 126 times as much.",
		"Fewest calls to the runtime: evented (10); generic 60, 6 times as much; hybrid 40, 4 times as much.",
		"Least CPU: generic (0s), hybrid (0s) and evented (0s).",
		"Where hybrid does not win: missed transitions (1, generic has 0), time with a wrong state (1.01s, evented has 8ms), calls (40, evented has 10).",
		"Best for this node: evented (fewest missed and wrong, then the shortest time with a wrong state, then the fewest calls).",
	}
	if diff := cmp.Diff(want, r.Verdict); diff != "" {
		t.Error(diff)
	}
	if v := judge(costing("generic", life(800*ms), 6), costing("hybrid", life(2*ms), 4)).Verdict; v[len(v)-2] != "No mode is better than hybrid at anything that was measured." {
		t.Errorf("%q", v)
	}
}

// All of them are 100 %, not 1e+02.
func TestVerdictOnWhoMissedAll(t *testing.T) {
	v := judge(trace("generic", nil), trace("hybrid", life(ms), lifeSaid()...)).Verdict
	if want := "hybrid told all 4 transitions, each in time and right; generic missed 4 (100 %)."; v[0] != want {
		t.Errorf("%q, want %q", v[0], want)
	}
}

// A mode that told nothing is not the fastest to tell.
func TestVerdictOnWhoToldNothing(t *testing.T) {
	v := judge(costing("evented", nil, 1), costing("hybrid", life(2*ms), 1)).Verdict
	for _, want := range []string{"Fastest to tell: hybrid (2ms).", "No mode is better than hybrid at anything that was measured."} {
		if !slices.Contains(v, want) {
			t.Errorf("no %q in %q", want, v)
		}
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 100: "100", 99.7: "100", 9.96: "10", 1.5: "1.5", 2: "2", 0.00001234: "0.000012", 123456: "123456"} {
		if got := compare.Digits(v, 2); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	if got := compare.ShowBytes(1023.96 * 1024); got != "1024 KiB" {
		t.Error(got)
	}
}

// Of figures that vary a tenth more is the same; of faults one more is worse.
func TestEachFaultCounts(t *testing.T) {
	var all, fewer []compare.Event
	for i := range 40 {
		e := ev(11*second+int64(i)*ms, store.ContainerCreated)
		e.ID = fmt.Sprint("c", i)
		all = append(all, e)
	}
	fewer = all[:20]
	again := slices.Concat(all, all[:20])
	for _, tc := range []struct {
		name            string
		generic, hybrid []compare.Event
		want            string
	}{
		{"missed", fewer, fewer[:19], "missed transitions (21, generic has 20)"},
		{"told twice", again, slices.Concat(all, all[:21]), "transitions told twice (21, generic has 20)"},
	} {
		v := compare.Judge(compare.Input{
			Traces: []*compare.Trace{trace("generic", tc.generic), trace("hybrid", tc.hybrid)}, From: from, To: to, History: created(all),
		}).Verdict
		if !slices.ContainsFunc(v, func(s string) bool {
			return strings.HasPrefix(s, "Where hybrid does not win: ") && strings.Contains(s, tc.want)
		}) {
			t.Errorf("%s: %q", tc.name, v)
		}
	}
}

// created is the history of a runtime on which that was created.
func created(events []compare.Event) (all []compare.Happened) {
	for _, e := range events {
		all = append(all, compare.Happened{At: e.At - ms, Type: e.Type, ID: e.ID, Sandbox: e.Sandbox, Pod: e.Pod})
	}
	return all
}
