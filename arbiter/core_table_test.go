package arbiter

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// TestLaddersFollowCRI: the numbers written out in core_ladder.go are the
// CRI's, and each shows the state it should.
func TestLaddersFollowCRI(t *testing.T) {
	containers := map[runtimeapi.ContainerState]store.State{
		runtimeapi.ContainerState_CONTAINER_CREATED: store.StateCreated,
		runtimeapi.ContainerState_CONTAINER_RUNNING: store.StateUp,
		runtimeapi.ContainerState_CONTAINER_EXITED:  store.StateDown,
		runtimeapi.ContainerState_CONTAINER_UNKNOWN: store.StateNone,
	}
	sandboxes := map[runtimeapi.PodSandboxState]store.State{
		runtimeapi.PodSandboxState_SANDBOX_READY:    store.StateUp,
		runtimeapi.PodSandboxState_SANDBOX_NOTREADY: store.StateDown,
	}
	types := map[runtimeapi.ContainerEventType]store.State{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT: store.StateCreated,
		runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT: store.StateUp,
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT: store.StateDown,
		runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT: store.StateRemoved,
	}
	for n := int32(-2); n < 20; n++ {
		if got := rung(store.KindContainer, n); got != containers[runtimeapi.ContainerState(n)] {
			t.Errorf("container state %d shows %d", n, got)
		}
		if got := rung(store.KindSandbox, n); got != sandboxes[runtimeapi.PodSandboxState(n)] {
			t.Errorf("sandbox state %d shows %d", n, got)
		}
		if got := claimed(EventKind(n)); got != types[runtimeapi.ContainerEventType(n)] {
			t.Errorf("event type %d claims %d", n, got)
		}
	}
	// An enum that grows needs a decision here.
	for name, sizes := range map[string][2]int{
		"ContainerState":     {len(runtimeapi.ContainerState_name), len(containers)},
		"PodSandboxState":    {len(runtimeapi.PodSandboxState_name), len(sandboxes)},
		"ContainerEventType": {len(runtimeapi.ContainerEventType_name), len(types)},
	} {
		if sizes[0] != sizes[1] {
			t.Errorf("the CRI's %s has %d values, this test knows %d", name, sizes[0], sizes[1])
		}
	}
}

func TestEventTypes(t *testing.T) {
	for typ, state := range stateOf {
		kind := store.KindContainer
		if strings.HasPrefix(string(typ), "Sandbox") {
			kind = store.KindSandbox
		}
		if got := eventType(kind, state); got != typ {
			t.Errorf("%s %s is told as %q, want %q", kind, state.Name(kind), got, typ)
		}
	}
}

// TestWins: the order of two pieces of evidence for one group of fields (O7).
func TestWins(t *testing.T) {
	call := func(from, to timestamps.Tick, s store.State) store.Evidence {
		return store.Evidence{Span: timestamps.Call(from, to), State: s}
	}
	event := func(to timestamps.Tick, s store.State) store.Evidence {
		return store.Evidence{Span: timestamps.Receipt(to), State: s}
	}
	full := func(e store.Evidence) store.Evidence { e.Full = true; return e }
	tests := []struct {
		name     string
		old, new store.Evidence
		order    int
		want     bool
	}{
		{"nothing known", store.Evidence{}, event(5, store.StateUp), 0, true},
		{"certainly later", call(1, 2, store.StateDown), call(3, 4, store.StateUp), 0, true},
		{"certainly earlier", call(3, 4, store.StateUp), call(1, 2, store.StateDown), 0, false},
		{"call sent after an event", event(3, store.StateDown), call(4, 5, store.StateUp), 0, true},
		{"event received after a call is not certainly later", call(1, 2, store.StateDown), event(3, store.StateUp), 0, false},
		{"concurrent, further state", event(5, store.StateUp), event(4, store.StateDown), 0, true},
		{"concurrent, earlier state", event(4, store.StateDown), event(5, store.StateUp), 0, false},
		{"concurrent, same state, later end", call(1, 6, store.StateUp), call(2, 7, store.StateUp), 0, true},
		{"concurrent, same state and end, later start", call(1, 7, store.StateUp), call(2, 7, store.StateUp), 0, true},
		{"the same, greater value", event(5, store.StateUp), event(5, store.StateUp), 1, true},
		{"the same, smaller value", event(5, store.StateUp), event(5, store.StateUp), -1, false},
		{"the same, equal value", event(5, store.StateUp), event(5, store.StateUp), 0, false},
		{"a status over a later list item", full(call(1, 2, store.StateUp)), call(3, 4, store.StateDown), 0, false},
		{"a status over an earlier list item", call(3, 4, store.StateDown), full(call(1, 2, store.StateUp)), 0, true},
	}
	for _, tt := range tests {
		if got := wins(&tt.old, &tt.new, func() int { return tt.order }); got != tt.want {
			t.Errorf("%s: wins = %t", tt.name, got)
		}
	}
}

// TestWinsIsAnOrder: of any two different pieces of evidence exactly one wins,
// whichever comes first, and of three the same one in each order (O7, F15).
func TestWinsIsAnOrder(t *testing.T) {
	type claim struct {
		ev    store.Evidence
		value int
	}
	var claims []claim
	for _, full := range []bool{false, true} {
		for _, span := range []timestamps.Span{timestamps.Receipt(2), timestamps.Receipt(5), timestamps.Call(1, 3), timestamps.Call(2, 6), timestamps.Call(4, 6), timestamps.Call(7, 8)} {
			for _, s := range []store.State{store.StateCreated, store.StateDown} {
				claims = append(claims, claim{store.Evidence{Span: span, State: s, Full: full}, len(claims)})
			}
		}
	}
	last := func(order ...claim) int {
		var ev store.Evidence
		var v int
		for _, c := range order {
			put(&v, &ev, &c.value, &c.ev, compare[int])
		}
		return v
	}
	wrong := 0
	for _, a := range claims {
		for _, b := range claims {
			if last(a, b) != last(b, a) {
				t.Fatalf("%+v and %+v: the order decides", a, b)
			}
			for _, c := range claims {
				got := []int{last(a, b, c), last(a, c, b), last(b, a, c), last(b, c, a), last(c, a, b), last(c, b, a)}
				if slices.Max(got) != slices.Min(got) {
					wrong++
				}
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d triples depend on the order", wrong)
	}
}

// TestWhichEventsMayIntroduce: which events may introduce an id and which only
// ask about it (O5, T3).
func TestWhichEventsMayIntroduce(t *testing.T) {
	tests := []struct {
		name      string
		list      bool  // a full list has completed, sent at +10s
		step      int64 // the wall clock is set
		createdAt int64
		horizon   int64
		known     bool
	}{
		{name: "after the last list", list: true, createdAt: start + 11*second, known: true},
		{name: "at the last list", list: true, createdAt: start + 10*second},
		{name: "before the last list", list: true, createdAt: start + 9*second},
		{name: "no list yet", createdAt: start + 11*second},
		{name: "no time", list: true},
		{name: "negative", list: true, createdAt: -6795364578871345152},
		{name: "seconds", list: true, createdAt: (start + 11*second) / second},
		{name: "milliseconds", list: true, createdAt: (start + 11*second) / 1_000_000},
		{name: "far past", list: true, createdAt: start - 400*24*3600*second},
		{name: "future", list: true, createdAt: start + 60*second},
		{name: "clock stepped forward", list: true, step: 3600 * second, createdAt: start + 3611*second},
		{name: "clock stepped back", list: true, step: -3600 * second, createdAt: start - 3589*second},
		{name: "before the horizon", list: true, createdAt: start + 11*second, horizon: start + 12*second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(Limits{})
			r.pass(10 * second)
			if tt.list {
				r.step(&ListSeen{SandboxCall: Call{Sent: r.stamp(), Answered: r.stamp()}, ContainerCall: Call{Sent: r.stamp(), Answered: r.stamp()}})
			}
			if tt.horizon != 0 {
				r.core.horizon = store.Horizon{Tick: 1, Wall: tt.horizon}
			}
			r.pass(2 * second)
			r.wall += tt.step
			x := thing{kind: store.KindSandbox, id: "A", sandbox: "A", pod: "U1", state: store.StateUp, ip: "10.0.0.5"}
			r.step(&EventSeen{At: r.stamp(), Type: EventStarted, ID: "A", CreatedAt: tt.createdAt, Sandbox: x.status()})
			e := r.core.ents["A"]
			if e == nil || e.rec.Provisional == tt.known {
				t.Errorf("record %+v, want known %t", e, tt.known)
			}
			if _, asked := r.core.asks["A"]; asked == tt.known {
				t.Errorf("asked about: %t", asked)
			}
		})
	}
}

// TestRulesAreCited: every rule that the core decides is cited by a test or a
// transcript, so that docs/design.md can point at it.
func TestRulesAreCited(t *testing.T) {
	var all strings.Builder
	for _, dir := range []string{".", "testdata"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := e.Name()
			if !strings.HasPrefix(name, "core_") && dir == "." || !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, ".txt") {
				continue
			}
			text, err := os.ReadFile(dir + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "# ") || strings.HasPrefix(line, "// ") {
					all.WriteString(line)
				}
			}
		}
	}
	for _, rule := range []string{"T1", "T2", "T3", "O1", "O2", "O3", "O4", "O5", "O6", "O7", "O8", "O9", "D1"} {
		if !regexp.MustCompile(`\b` + rule + `\b`).MatchString(all.String()) {
			t.Errorf("no test cites rule %s", rule)
		}
	}
}
