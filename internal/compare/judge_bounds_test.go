package compare_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/store"
)

// A report of a long time on a busy node is bounded: what was not told well is
// listed before all else, and what isn't listed is counted.
func TestReportIsBounded(t *testing.T) {
	var events []compare.Event
	var raws []compare.Raw
	const n = compare.MaxTransitions + compare.MaxFindings + 100
	for i := range int64(n) {
		at := from + i*int64(time.Microsecond)
		id := fmt.Sprint("c", i)
		raws = append(raws, compare.Raw{At: at + ms, Via: compare.ViaList, ID: id, Says: "CREATED", CreatedAt: at})
		if i < n-compare.MaxFindings-10 { // the last ones are missed by the other mode
			events = append(events, compare.Event{At: at + ms, Type: store.ContainerCreated, ID: id, Sandbox: "s"})
		}
	}
	all := slices.Clone(events)
	for i := len(events); i < n; i++ {
		all = append(all, compare.Event{At: raws[i].At, Type: store.ContainerCreated, ID: raws[i].ID, Sandbox: "s"})
	}
	all = append(all, all[compare.MaxTransitions]) // told twice, and too late in time to be listed for anything else
	r := judge(trace("hybrid", all, raws...), trace("evented", events))
	// A chart is about all of them, whichever are listed.
	if l := r.Modes[1].All; l.N != len(events) || l.Judged != n || len(l.Spread) != 400 || !slices.IsSorted(l.Spread) || l.Spread[399] != l.Max {
		t.Errorf("%d of %d in %d steps", l.N, l.Judged, len(l.Spread))
	}
	if len(r.Transitions) != compare.MaxTransitions || r.Unlisted != n-compare.MaxTransitions || r.Counts[store.ContainerCreated] != n {
		t.Errorf("%d listed, %d not, %v", len(r.Transitions), r.Unlisted, r.Counts)
	}
	m := r.Modes[1]
	if m.Missed != compare.MaxFindings+10 || len(m.Findings) != compare.MaxFindings || m.Unlisted != 10 {
		t.Errorf("missed %d, %d listed, %d not", m.Missed, len(m.Findings), m.Unlisted)
	}
	if r.Modes[0].Duplicated != 1 {
		t.Errorf("told twice: %d", r.Modes[0].Duplicated)
	}
	for _, f := range append(m.Findings, r.Modes[0].Findings...) {
		if f.Transition < 0 || r.Transitions[f.Transition].ID != f.ID {
			t.Fatalf("%+v has no transition", f)
		}
	}
}

// Lines beyond what is kept of a mode are counted.
func TestTraceIsBounded(t *testing.T) {
	tr := trace("hybrid", nil)
	for range 300 {
		tr.Add(compare.Line{Note: &compare.Note{Text: "the stream ended"}})
	}
	if len(tr.Notes) != 200 || tr.Dropped != 100 {
		t.Errorf("%d notes, %d dropped", len(tr.Notes), tr.Dropped)
	}
	if notes := judge(tr).Modes[0].Notes; !strings.Contains(notes[len(notes)-1].Text, "100 lines were too many to keep") {
		t.Errorf("%+v", notes[len(notes)-1])
	}
}

// What a mode told beyond what is kept of it is not missed: the report ends before.
func TestReportEndsWhereATraceIsFull(t *testing.T) {
	full, other := trace("hybrid", nil), trace("generic", nil)
	told := func(at int64, id string) compare.Line {
		return compare.Line{Event: &compare.Event{At: at, Type: store.ContainerCreated, ID: id, OccurredAt: at}}
	}
	for range 499_999 {
		full.Add(told(9*second, "old"))
	}
	for i, at := range []int64{11 * second, 15 * second, 16 * second} {
		full.Add(told(at, fmt.Sprint("c", i)))
		other.Add(told(at, fmt.Sprint("c", i)))
	}
	r := judge(full, other)
	if r.Modes[0].Missed != 0 || len(r.Transitions) != 1 || r.To != 15*second-int64(compare.DefaultLate) {
		t.Errorf("missed %d of %d until %d", r.Modes[0].Missed, len(r.Transitions), r.To)
	}
	if len(r.Notes) != 1 || !strings.HasPrefix(r.Notes[0], "hybrid told more than 500000 events") {
		t.Errorf("notes %q", r.Notes)
	}
}
