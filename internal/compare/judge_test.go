package compare_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/store"
)

// second and ms are times of the tables: the measurement goes from second 10 to
// second 20.
const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
	from   = 10 * second
	to     = 20 * second
	closed = 23 * second
)

var web = compare.Pod{UID: "u1", Namespace: "shop", Name: "web"}

// ev is an event of container c, told at a time.
func ev(at int64, typ store.EventType, change ...func(*compare.Event)) compare.Event {
	e := compare.Event{At: at, Type: typ, ID: "c", Sandbox: "s", Pod: web, Name: "app"}
	if strings.HasPrefix(string(typ), "Sandbox") {
		e.ID, e.Name = "s", ""
	}
	for _, f := range change {
		f(&e)
	}
	return e
}

func exit(code int32, reason string) func(*compare.Event) {
	return func(e *compare.Event) { e.ExitKnown, e.ExitCode, e.Reason = true, code, reason }
}

func occurred(at int64) func(*compare.Event) {
	return func(e *compare.Event) { e.OccurredAt = at }
}

// said is a status of container c.
func said(at int64, says string, started, finished int64, code int32) compare.Raw {
	return compare.Raw{At: at, Via: compare.ViaStatus, ID: "c", Kind: "container", Sandbox: "s", Says: says, Pod: web,
		CreatedAt: 11 * second, StartedAt: started, FinishedAt: finished, ExitCode: code}
}

func trace(mode string, events []compare.Event, raws ...compare.Raw) *compare.Trace {
	m, err := compare.ParseMode(mode)
	if err != nil {
		panic(err)
	}
	return &compare.Trace{Mode: m, Ready: &compare.Ready{At: 9 * second, Stream: "up"}, Events: events, Raws: raws, End: &compare.End{At: 24 * second}}
}

func judge(traces ...*compare.Trace) *compare.Report {
	return compare.Judge(compare.Input{Traces: traces, From: from, To: to, Close: closed, Late: compare.DefaultLate})
}

// What was gone before the measurement is no part of it: a runtime may tell of it
// again, and not to each mode as soon.
func TestGoneBefore(t *testing.T) {
	old := func(removed int64) []compare.Event {
		return []compare.Event{ev(8*second, store.ContainerCreated, occurred(8*second)), ev(8*second, store.ContainerStarted), ev(removed, store.ContainerRemoved)}
	}
	r := judge(trace("generic", old(9*second)), trace("hybrid", old(17*second)))
	if r.Modes[1].StateWrong != 0 || r.Modes[1].Judged != 0 {
		t.Errorf("state wrong for %v, %d judged", r.Modes[1].StateWrong, r.Modes[1].Judged)
	}
}

// life is all that container c does, told some ms after each.
func life(after int64) []compare.Event {
	return []compare.Event{
		ev(11*second+after, store.ContainerCreated, occurred(11*second)),
		ev(12*second+after, store.ContainerStarted, occurred(12*second)),
		ev(13*second+after, store.ContainerDied, occurred(13*second), exit(7, "Error")),
		ev(14*second+after, store.ContainerRemoved),
	}
}

// lifeSaid is what the runtime says of it.
func lifeSaid() []compare.Raw {
	return []compare.Raw{
		said(12*second+ms, "RUNNING", 12*second, 0, 0),
		func() compare.Raw {
			r := said(13*second+ms, "EXITED", 12*second, 13*second, 7)
			r.Reason = "Error"
			return r
		}(),
		{At: 14*second + ms, Via: compare.ViaEvent, ID: "c", Says: "DELETED", EventAt: 14 * second},
	}
}

// counts is what a mode is found to have done.
type counts struct{ Judged, Told, Missed, Late, Wrong, Duplicated, Reordered, Corrected int }

func countsOf(m compare.ModeReport) counts {
	return counts{m.Judged, m.Told, m.Missed, m.Late, m.Wrong, m.Duplicated, m.Reordered, m.Corrected}
}

// Each fault is found where it is, with a word on it, and nowhere else.
func TestJudge(t *testing.T) {
	without := func(events []compare.Event, i int) []compare.Event {
		return slices.Delete(slices.Clone(events), i, i+1)
	}
	with := func(events []compare.Event, i int, f func(*compare.Event)) []compare.Event {
		out := slices.Clone(events)
		f(&out[i])
		return out
	}
	good := counts{Judged: 4, Told: 4}
	for _, tc := range []struct {
		name   string
		mode   string          // that told the events, evented unless it is said
		events []compare.Event // of mode evented; hybrid tells all of it well
		want   counts
		find   string
		state  time.Duration
	}{
		{name: "all well", events: life(2 * ms), want: good, state: 8 * time.Millisecond},
		{name: "missed at the end", events: without(life(2*ms), 3), want: counts{Judged: 4, Told: 3, Missed: 1},
			find: "missed ContainerRemoved: never told", state: 6*time.Second + 6*time.Millisecond},
		{name: "missed in the middle", events: without(life(2*ms), 1), want: counts{Judged: 4, Told: 3, Missed: 1},
			find: "missed ContainerStarted: never told", state: time.Second + 6*time.Millisecond},
		// Nobody's state is wrong of what is gone, whether it was known or not.
		{name: "all missed", want: counts{Judged: 4, Missed: 4}, find: "missed", state: 3 * time.Second},
		{name: "late", events: with(life(2*ms), 3, func(e *compare.Event) { e.At = 17 * second }), want: counts{Judged: 4, Told: 4, Late: 1},
			find: "late ContainerRemoved: told 3s after it happened", state: 3*time.Second + 6*time.Millisecond},
		{name: "just not late", events: with(life(2*ms), 3, func(e *compare.Event) { e.At = 16 * second }), want: good,
			state: 2*time.Second + 6*time.Millisecond},
		{name: "only at the end", mode: "generic", events: with(life(2*ms), 3, func(e *compare.Event) { e.At = closed + ms }), want: counts{Judged: 4, Told: 4, Late: 1},
			find: "late ContainerRemoved: told only by the relist at the end, 9s after", state: 6*time.Second + 6*time.Millisecond},
		{name: "at the end, but not by a relist", events: with(life(2*ms), 3, func(e *compare.Event) { e.At = closed + ms }), want: counts{Judged: 4, Told: 4, Late: 1},
			find: "late ContainerRemoved: told 9s after it happened", state: 6*time.Second + 6*time.Millisecond},
		{name: "wrong code", events: with(life(2*ms), 2, exit(0, "Completed")), want: counts{Judged: 4, Told: 4, Wrong: 1},
			find: "wrong ContainerDied: told exit code 0, the runtime says 7", state: 8 * time.Millisecond},
		{name: "wrong reason", events: with(life(2*ms), 2, exit(7, "OOMKilled")), want: counts{Judged: 4, Told: 4, Wrong: 1},
			find: `told reason "OOMKilled", the runtime says "Error"`, state: 8 * time.Millisecond},
		{name: "no code", events: with(life(2*ms), 2, func(e *compare.Event) { e.ExitKnown = false }), want: counts{Judged: 4, Told: 4, Wrong: 1},
			find: "told without exit code, the runtime says 7", state: 8 * time.Millisecond},
		{name: "wrong pod", events: with(life(2*ms), 1, func(e *compare.Event) { e.Pod.UID = "u2" }), want: counts{Judged: 4, Told: 4, Wrong: 1},
			find: "told of pod shop/web (u2), the runtime says shop/web (u1)", state: 8 * time.Millisecond},
		{name: "wrong time", events: with(life(2*ms), 1, occurred(10*second)), want: counts{Judged: 4, Told: 4, Wrong: 1},
			find: "told a time that is 2s from the runtime's", state: 8 * time.Millisecond},
		{name: "corrected", events: append(with(life(2*ms), 2, func(e *compare.Event) { e.ExitKnown = false }),
			ev(15*second, store.ContainerChanged, exit(7, "Error"), occurred(13*second), func(e *compare.Event) {
				e.Change, e.Changed = store.ChangeAmended, []string{store.FieldExitCode}
			})), want: counts{Judged: 4, Told: 4, Corrected: 1}, state: 8 * time.Millisecond},
		{name: "duplicated", events: append(life(2*ms), ev(15*second, store.ContainerRemoved)), want: counts{Judged: 4, Told: 4, Duplicated: 1},
			find: "duplicated ContainerRemoved: told 2 times", state: 8 * time.Millisecond},
		{name: "reordered", events: []compare.Event{life(2 * ms)[0], life(2 * ms)[2], ev(13*second+5*ms, store.ContainerStarted), life(2 * ms)[3]},
			want: counts{Judged: 4, Told: 4, Reordered: 1}, find: "reordered ContainerStarted: told 3ms after ContainerDied, which comes later",
			// From second 12 to 13 it was created for the mode, and running again from 5 ms after its death to its removal.
			state: 2*time.Second + (2+2-5+2)*time.Millisecond},
		{name: "taken back and told again", events: append(life(2 * ms)[:2], ev(12*second+10*ms, store.ContainerChanged, func(e *compare.Event) {
			e.Change, e.State = store.ChangeRegressed, "created"
		}), ev(12*second+20*ms, store.ContainerStarted), life(2 * ms)[2], life(2 * ms)[3]), want: good, state: 18 * time.Millisecond},
		{name: "before the measurement", events: append([]compare.Event{ev(8*second, store.SandboxCreated, occurred(5*second))}, life(2*ms)...), want: good,
			// Hybrid knows the sandbox; whether it exists is not judged, but its state is.
			state: 8 * time.Millisecond},
		{name: "twice before the measurement", events: append([]compare.Event{ev(8*second, store.SandboxCreated), ev(9*second, store.SandboxCreated)}, life(2*ms)...),
			want: good, state: 8 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mode := "evented"
			if tc.mode != "" {
				mode = tc.mode
			}
			r := judge(trace(mode, tc.events, lifeSaid()...), trace("hybrid", life(ms), lifeSaid()...))
			if diff := cmp.Diff(tc.want, countsOf(r.Modes[0])); diff != "" {
				t.Errorf("evented:\n%s\n%+v", diff, r.Modes[0].Findings)
			}
			if diff := cmp.Diff(good, countsOf(r.Modes[1])); diff != "" {
				t.Errorf("hybrid:\n%s\n%+v", diff, r.Modes[1].Findings)
			}
			if got := r.Modes[0].StateWrong; got != tc.state {
				t.Errorf("state wrong for %v, want %v", got, tc.state)
			}
			listed := ""
			for _, f := range r.Modes[0].Findings {
				listed += string(f.Fault) + " " + string(f.Type) + ": " + f.What + "\n"
				if f.Transition < 0 || r.Transitions[f.Transition].ID != "c" || len(f.Around) == 0 {
					t.Errorf("finding without its transition or what was said: %+v", f)
				}
			}
			if !strings.Contains(listed, tc.find) || (listed == "") != (tc.find == "") {
				t.Errorf("found\n%swant %q", listed, tc.find)
			}
		})
	}
}

// When a transition happened is known by the best that there is.
func TestTimesOfTransitions(t *testing.T) {
	tr := func(r *compare.Report, typ store.EventType) compare.Transition {
		for _, x := range r.Transitions {
			if x.Type == typ {
				return x
			}
		}
		t.Fatalf("no %s in %+v", typ, r.Transitions)
		return compare.Transition{}
	}
	events := life(30 * ms)
	r := judge(trace("hybrid", events, lifeSaid()...))
	for typ, want := range map[store.EventType]compare.Basis{
		store.ContainerCreated: compare.BasisRuntime, store.ContainerStarted: compare.BasisRuntime,
		store.ContainerDied: compare.BasisRuntime, store.ContainerRemoved: compare.BasisEvent,
	} {
		if got := tr(r, typ); got.Basis != want || got.At%second != 0 {
			t.Errorf("%s at %d by %s, want %s", typ, got.At, got.Basis, want)
		}
	}
	// Without any word of the runtime it is the first moment at which it was known.
	r = judge(trace("generic", events), trace("hybrid", life(20*ms), compare.Raw{At: 14*second + 5*ms, Via: compare.ViaList, ID: "c", Says: "ABSENT"}))
	if got := tr(r, store.ContainerStarted); got.Basis != compare.BasisSeen || got.At != 12*second+20*ms {
		t.Errorf("start: %+v", got)
	}
	if got := tr(r, store.ContainerRemoved); got.Basis != compare.BasisSeen || got.At != 14*second+5*ms {
		t.Errorf("removal: %+v", got)
	}
	// Who was seen to run was created before.
	r = judge(trace("hybrid", []compare.Event{ev(12*second+50*ms, store.ContainerCreated)}, compare.Raw{At: 12*second + 10*ms, Via: compare.ViaList, ID: "c", Says: "RUNNING"}))
	if got := tr(r, store.ContainerCreated); got.Basis != compare.BasisSeen || got.At != 12*second+10*ms {
		t.Errorf("creation: %+v", got)
	}
	// A time that can't be is not believed: seconds for nanoseconds, or one in the future.
	for _, bad := range []int64{12, 19 * second} {
		r = judge(trace("hybrid", events, said(12*second+10*ms, "RUNNING", bad, 0, 0)))
		if got := tr(r, store.ContainerStarted); got.Basis != compare.BasisSeen {
			t.Errorf("start said to be at %d: %+v", bad, got)
		}
	}
	// What was so before the measurement is no part of it.
	old := []compare.Event{ev(9*second, store.ContainerCreated, occurred(5*second)), ev(10*second+50*ms, store.ContainerStarted, occurred(6*second))}
	if r = judge(trace("hybrid", old, said(9*second, "RUNNING", 6*second, 0, 0))); len(r.Transitions) != 0 {
		t.Errorf("judged %+v", r.Transitions)
	}
}

// What no mode told but a history has is missed by all; what it lacks did not happen.
func TestJudgeByHistory(t *testing.T) {
	h := func(at int64, typ store.EventType) compare.Happened {
		return compare.Happened{At: at, Type: typ, ID: "c", Sandbox: "s", Pod: web, ExitCode: 7, Reason: "Error"}
	}
	in := compare.Input{
		From: from, To: to, Close: closed, Late: compare.DefaultLate,
		Traces: []*compare.Trace{trace("generic", life(ms)[:3]), trace("hybrid", life(ms)[:3])},
		History: []compare.Happened{
			h(11*second, store.ContainerCreated), h(13*second, store.ContainerDied), h(14*second, store.ContainerRemoved),
		},
	}
	r := compare.Judge(in)
	for _, m := range r.Modes {
		if got := countsOf(m); got != (counts{Judged: 3, Told: 2, Missed: 1, Wrong: 1}) {
			t.Errorf("%s: %+v, %+v", m.Name, got, m.Findings)
		}
	}
	if r.Basis[compare.BasisHistory] != 3 {
		t.Errorf("basis %v", r.Basis)
	}
}

// A removal that the runtime contradicts long after is not one that the others missed.
func TestFalseRemoval(t *testing.T) {
	alive := lifeSaid()[:1]
	alive[0].At = 19 * second
	r := judge(trace("evented", []compare.Event{life(ms)[0], life(ms)[1], life(ms)[3]}), trace("hybrid", life(ms)[:2], alive...))
	if got := countsOf(r.Modes[0]); got.Wrong != 1 || got.Missed != 0 {
		t.Errorf("evented: %+v", got)
	}
	if got := countsOf(r.Modes[1]); got != (counts{Judged: 2, Told: 2}) {
		t.Errorf("hybrid: %+v, %+v", got, r.Modes[1].Findings)
	}
}

// A mode that ended early is judged up to its end, and one that never ran not at all.
func TestModesThatEnd(t *testing.T) {
	early := trace("evented", life(ms)[:2])
	early.End = &compare.End{At: 13*second - ms, Err: "store: disk gone"}
	never := trace("hinted", nil)
	never.Ready, never.End = nil, &compare.End{Err: "event stream is not supported"}
	slow := trace("generic", life(ms))
	slow.Ready.At = from + 1
	r := judge(early, never, trace("hybrid", life(ms), lifeSaid()...), slow)
	if !strings.Contains(r.Modes[3].NotRun, "only after the measurement had begun") {
		t.Errorf("slow: %+v", r.Modes[3])
	}
	if got := countsOf(r.Modes[0]); got != (counts{Judged: 2, Told: 2}) || r.Modes[0].Ended != "store: disk gone" {
		t.Errorf("%+v, ended %q", got, r.Modes[0].Ended)
	}
	if r.Modes[1].NotRun != "event stream is not supported" || r.Modes[1].Missed != 0 {
		t.Errorf("%+v", r.Modes[1])
	}
	all := strings.Join(r.Verdict, "\n")
	for _, want := range []string{"evented ended early and is left out", "hinted could not be judged: event stream is not supported", "hybrid told all 4 transitions"} {
		if !strings.Contains(all, want) {
			t.Errorf("the verdict lacks %q:\n%s", want, all)
		}
	}
}

func TestLatencies(t *testing.T) {
	var a []compare.Event
	var raws []compare.Raw
	for i := range int64(100) {
		id := "c" + string(rune('0'+i/10)) + string(rune('0'+i%10))
		at := 11*second + i*10*ms
		a = append(a, compare.Event{At: at + (i+1)*ms, Type: store.ContainerCreated, ID: id, Sandbox: "s"})
		raws = append(raws, compare.Raw{At: at, Via: compare.ViaList, ID: id, Says: "CREATED", CreatedAt: at})
	}
	r := judge(trace("hybrid", a, raws...))
	want := compare.Latency{N: 100, Judged: 100, P50: 50 * time.Millisecond, P90: 90 * time.Millisecond, P99: 99 * time.Millisecond, Max: 100 * time.Millisecond}
	for i := range 100 {
		want.Spread = append(want.Spread, time.Duration(i+1)*time.Millisecond)
	}
	if diff := cmp.Diff(want, r.Modes[0].All) + cmp.Diff(want, r.Modes[0].Latency[store.ContainerCreated]); diff != "" {
		t.Error(diff)
	}
}

// Costs are those of the measurement: neither of the start nor of the end.
func TestCosts(t *testing.T) {
	tr := trace("hybrid", life(ms), lifeSaid()...)
	for s := int64(8); s <= 24; s++ {
		tr.Samples = append(tr.Samples, compare.Sample{At: s * second, CPU: s * 100 * ms, Allocs: uint64(s) * 10, Commits: uint64(s), Fsyncs: 2 * uint64(s),
			RSS: s << 20, Calls: map[string]compare.Calls{"ListContainers": {Calls: uint64(s), Sent: s, Received: 9 * s}, "Version": {Calls: 1}}})
	}
	c := judge(tr).Modes[0]
	if c.Cost.CPU != time.Second || c.Cost.Fsyncs != 20 || c.Cost.Allocs != 100 || c.Cost.Seconds != 10 || c.Cost.RSS != 24<<20 {
		t.Errorf("%+v", c.Cost)
	}
	if got := c.Cost.Calls; len(got) != 1 || got["ListContainers"] != (compare.Calls{Calls: 10, Sent: 10, Received: 90}) {
		t.Errorf("calls %+v", got)
	}
	if len(c.Series) != 10 || c.Series[3].CPU < 0.099 || c.Series[3].CPU > 0.101 || c.Series[3].Calls != 1 || c.Series[3].Bytes != 10 {
		t.Errorf("series %+v", c.Series)
	}
}
