package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/doctor"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// patient is a simulated runtime, and what is wrong with it.
type patient struct {
	profile simruntime.Profile
	rules   []simruntime.Rule
	idle    bool                      // nothing happens in it
	fill    int                       // pods that are there
	listen  time.Duration             // 0 for the usual
	clock   *simruntime.StepClock     // of the runtime, if not this machine's
	during  func(*simruntime.Runtime) // is called after ten seconds
}

// examine examines it in virtual time.
func examine(t *testing.T, p patient) (r doctor.Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sim := simruntime.Config{Seed: 1, Profile: p.profile}
		if p.clock != nil {
			sim.Wall = p.clock.Now
		}
		rt := simtest.New(t, sim)
		if err := rt.Fill(p.fill, 2); err != nil {
			t.Fatal(err)
		}
		for _, rule := range p.rules {
			simtest.Rule(t, rt, rule)
		}
		lis := bufconn.Listen(1 << 20)
		simtest.Serve(t, rt, lis)
		w, err := simruntime.NewWorkload(rt, simruntime.WorkloadConfig{Seed: 1, Pods: 10, Rate: 10})
		if err != nil {
			t.Fatal(err)
		}
		cfg := doctor.Config{
			Endpoint: "/simulated", For: p.listen, RPCTimeout: 2 * time.Second,
			Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
		}
		cfg.During = func(ctx context.Context) error {
			if !p.idle {
				go func() { _ = w.Run(ctx) }()
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Second):
				if p.during != nil {
					p.during(rt)
				}
			}
			<-ctx.Done()
			return nil
		}
		o, err := doctor.Examine(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		r = doctor.Judge(&o)
	})
	return r
}

// text is a report's lines, one to a line.
func text(r doctor.Report) string {
	var b strings.Builder
	for _, l := range r.Lines {
		b.WriteString(strings.Join([]string{l.Check, string(l.Verdict), l.Finding, l.Advice}, ": ") + "\n")
	}
	return b.String() + string(r.Verdict) + ": " + r.Summary
}

// TestVerdicts has each runtime, and each way in which its stream can be wrong, judged
// as it is.
func TestVerdicts(t *testing.T) {
	event := simruntime.MethodEvent
	stream := simruntime.MethodGetContainerEvents
	var ahead, back simruntime.StepClock
	for _, tc := range []struct {
		name string
		patient
		verdict doctor.Verdict
		lines   map[string]doctor.Verdict // that are not ok
		says    []string
	}{
		{"containerd 2.4", patient{}, doctor.Good, nil, []string{"each subscriber gets each event", "tells what happened meanwhile"}},
		{"containerd 1.7", patient{profile: simruntime.Containerd17}, doctor.Bad, map[string]doctor.Verdict{"sharing": doctor.Bad}, []string{"compete", "hybrid does without by itself, and relists as often as generic"}},
		{"containerd 1.6", patient{profile: simruntime.Containerd16}, doctor.Bad, map[string]doctor.Verdict{"stream": doctor.Bad}, []string{"no event stream", "from 1.7 on"}},
		{"CRI-O", patient{profile: simruntime.CRIO}, doctor.Warning, map[string]doctor.Verdict{"types": doctor.Warning, "reconnect": doctor.Warning}, []string{"not told once: sandbox CREATED", "sandbox DELETED", "CRI-O is known to leave out sandboxes that are created or removed"}},
		{"CRI-O, events off", patient{profile: simruntime.CRIONoEvents}, doctor.Bad, map[string]doctor.Verdict{"stream": doctor.Bad}, []string{"enable_pod_events"}},
		{"unimplemented", patient{rules: []simruntime.Rule{{Method: stream, Code: codes.Unimplemented}}}, doctor.Bad, map[string]doctor.Verdict{"stream": doctor.Bad}, []string{"no event stream"}},
		{"EOF", patient{rules: []simruntime.Rule{{Method: stream, EOF: true}}}, doctor.Bad, map[string]doctor.Verdict{"stream": doctor.Bad}, []string{"at once, without an error"}},
		{"silent", patient{rules: []simruntime.Rule{{Method: event, Drop: true}}}, doctor.Bad, map[string]doctor.Verdict{"stream": doctor.Bad}, []string{"silent"}},
		{"idle", patient{idle: true}, doctor.Unknown, map[string]doctor.Verdict{"stream": doctor.Unknown, "missing": doctor.Unknown, "reconnect": doctor.Unknown}, []string{"nothing happened"}},
		{"silent about ends", patient{rules: []simruntime.Rule{{Method: event, Drop: true, Where: func(op simruntime.Op) bool {
			return op.Event.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		}}}}, doctor.Bad, map[string]doctor.Verdict{"missing": doctor.Bad, "types": doctor.Bad, "reconnect": doctor.Warning}, []string{"not told once: container STOPPED", "told to nobody"}},
		{"lost", patient{rules: []simruntime.Rule{{Method: event, Every: 10, Drop: true}}}, doctor.Bad, map[string]doctor.Verdict{"missing": doctor.Bad, "reconnect": doctor.Warning}, []string{"told to nobody"}},
		{"told twice", patient{rules: []simruntime.Rule{{Method: event, Every: 10, Duplicate: 1}}}, doctor.Warning, map[string]doctor.Verdict{"duplicates": doctor.Warning}, []string{"told again"}},
		{"late", patient{rules: []simruntime.Rule{{Method: event, Delay: 5 * time.Second}}}, doctor.Warning, map[string]doctor.Verdict{"lag": doctor.Warning, "reconnect": doctor.Unknown}, []string{"5s (p50)"}},
		{"reordered", patient{rules: []simruntime.Rule{{Method: event, Every: 5, Hold: 6}}}, doctor.Warning, map[string]doctor.Verdict{"order": doctor.Warning}, []string{"after later ones"}},
		{"no pod", patient{rules: []simruntime.Rule{{Method: event, Every: 10, Edit: simruntime.NoSandboxStatus}}}, doctor.Warning, map[string]doctor.Verdict{"payloads": doctor.Warning}, []string{"name no pod"}},
		{"no status", patient{rules: []simruntime.Rule{{Method: event, Every: 10, Edit: simruntime.NoContainerStatuses}}}, doctor.Warning, map[string]doctor.Verdict{"payloads": doctor.Warning}, []string{"lack the status"}},
		{"garbled", patient{rules: []simruntime.Rule{{Method: event, Every: 10, Raw: []byte{0xff}}}}, doctor.Bad, map[string]doctor.Verdict{"payloads": doctor.Warning, "missing": doctor.Bad, "reconnect": doctor.Warning}, []string{"can't be decoded"}},
		{"seconds", patient{rules: []simruntime.Rule{{Method: event, Edit: simruntime.Seconds}}}, doctor.Bad, map[string]doctor.Verdict{"times": doctor.Bad}, []string{"in seconds"}},
		{"restart", patient{during: func(rt *simruntime.Runtime) { rt.Down(); time.Sleep(3 * time.Second); rt.Up() }}, doctor.Bad, map[string]doctor.Verdict{"stream": doctor.Bad, "calls": doctor.Warning}, []string{"was ended 2 times"}},
		{"ended", patient{during: func(rt *simruntime.Runtime) { rt.EndStreams(codes.OK) }}, doctor.Bad, map[string]doctor.Verdict{"stream": doctor.Bad}, []string{"without an error"}},
		{"large", patient{profile: simruntime.Containerd17, rules: []simruntime.Rule{{Method: "ListContainers", Edit: simruntime.PadTo(9 << 20)}}, idle: true, fill: 1}, doctor.Warning,
			map[string]doctor.Verdict{"lists": doctor.Warning, "stream": doctor.Unknown, "missing": doctor.Unknown, "reconnect": doctor.Unknown}, []string{"1 sandbox and 2 containers", "9216 KiB of 16 MiB"}},
		{"failing", patient{rules: []simruntime.Rule{{Method: "ContainerStatus", Every: 3, Code: codes.Internal}}}, doctor.Warning, map[string]doctor.Verdict{"calls": doctor.Warning}, []string{"failed: status"}},
		{"failing, and a change before the gap is looked at in it", patient{listen: 15 * time.Second, rules: []simruntime.Rule{{Method: "ContainerStatus", Every: 3, Code: codes.Internal}}}, doctor.Warning, map[string]doctor.Verdict{"calls": doctor.Warning}, []string{"failed: status"}},
		{"frozen for a while", patient{during: func(rt *simruntime.Runtime) { rt.Freeze(); time.Sleep(8 * time.Second); rt.Thaw() }}, doctor.Warning, map[string]doctor.Verdict{"calls": doctor.Warning}, []string{"no answer within 2s"}},
		{"frozen for good", patient{during: (*simruntime.Runtime).Freeze}, doctor.Bad, map[string]doctor.Verdict{"calls": doctor.Bad, "reconnect": doctor.Unknown}, []string{"no list was answered in the last 21s", "no longer answers"}},
		{"stuck", patient{during: func(rt *simruntime.Runtime) { _, _ = rt.AddRule(simruntime.Rule{Method: event, Hang: true}) }}, doctor.Bad, map[string]doctor.Verdict{"missing": doctor.Bad, "reconnect": doctor.Warning}, []string{"told to nobody"}},
		{"never opened", patient{rules: []simruntime.Rule{{Method: stream, Hang: true}}}, doctor.Bad, map[string]doctor.Verdict{"stream": doctor.Bad}, []string{"silent"}},
		{"ended with an error", patient{during: func(rt *simruntime.Runtime) { rt.EndStreams(codes.Unavailable) }}, doctor.Bad, map[string]doctor.Verdict{"stream": doctor.Bad}, []string{"was ended 2 times"}},
		{"clock set ahead", patient{clock: &ahead, during: func(*simruntime.Runtime) { ahead.Step(time.Hour) }}, doctor.Warning, map[string]doctor.Verdict{"times": doctor.Warning}, []string{"in the future"}},
		{"clock set back", patient{clock: &back, during: func(*simruntime.Runtime) { back.Step(-time.Hour) }}, doctor.Warning, map[string]doctor.Verdict{"times": doctor.Warning}, []string{"before what they tell of"}},
		{"two kinds of times", patient{rules: []simruntime.Rule{{Method: event, Every: 3, Edit: simruntime.Seconds}, {Method: event, Every: 4, Edit: func(m proto.Message) { m.(*runtimeapi.ContainerEventResponse).CreatedAt = 0 }}}}, doctor.Bad, map[string]doctor.Verdict{"times": doctor.Bad}, []string{"in seconds", "have no created_at"}},
		{"mute", patient{rules: []simruntime.Rule{{Hang: true, IgnoreCancel: true}}}, doctor.Bad, map[string]doctor.Verdict{"version": doctor.Bad}, []string{"doesn't answer"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := examine(t, tc.patient)
			said := text(r)
			if r.Verdict != tc.verdict {
				t.Errorf("verdict %s, want %s", r.Verdict, tc.verdict)
			}
			for _, l := range r.Lines {
				want, ok := tc.lines[l.Check]
				if !ok {
					want = doctor.Good
				}
				if l.Check != "others" && l.Verdict != want { // it is no socket
					t.Errorf("%s: %s, want %s", l.Check, l.Verdict, want)
				}
			}
			for check := range tc.lines {
				if !slices.ContainsFunc(r.Lines, func(l doctor.Line) bool { return l.Check == check }) {
					t.Errorf("nothing about %s", check)
				}
			}
			for _, want := range tc.says {
				if !strings.Contains(said, want) {
					t.Errorf("doesn't say %q", want)
				}
			}
			if t.Failed() {
				t.Log("\n" + said)
			}
		})
	}
}

// A type that happened a few times and was not told is neither called told nor not told.
func TestTypeThatHappenedSeldom(t *testing.T) {
	from := time.Unix(1_800_000_000, 0)
	o := doctor.Observed{Runtime: "other", From: from, To: from.Add(30 * time.Second), Whole: true}
	fact := func(i int, kind runtimeapi.ContainerEventType) {
		at := from.Add(time.Duration(5+i) * time.Second)
		id := fmt.Sprint("c", i)
		o.Facts = append(o.Facts, doctor.Fact{ID: id, Type: kind, Since: at, Seen: at.Add(time.Millisecond)})
		if kind == runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT {
			for s := range o.Streams {
				o.Streams[s].Events = append(o.Streams[s].Events, doctor.Heard{At: at, ID: id, Type: kind, CreatedAt: at.UnixNano(), Own: true})
			}
		}
	}
	for i := range 5 {
		fact(i, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	}
	for i := range 4 {
		fact(5+i, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	r := doctor.Judge(&o)
	for _, l := range r.Lines {
		if l.Check == "types" && l.Finding != "told: container STARTED" {
			t.Errorf("types: %s", l.Finding)
		}
		if l.Check == "missing" && l.Finding != "4 of 9 transitions that lists showed were told to nobody (44.4 %)" {
			t.Errorf("missing: %s", l.Finding)
		}
	}
}

// What the runtime sent to a subscriber that had hung up, before a send of it failed,
// is not what it doesn't keep for the next one.
func TestReconnect(t *testing.T) {
	gap := time.Unix(1_800_000_000, 0)
	for _, tc := range []struct {
		name    string
		at      []int // ms into the gap, when a container was started
		told    []int // of those, after it
		others  []doctor.Other
		agent   bool
		verdict doctor.Verdict
		says    string
	}{
		{"all is told", []int{100, 1200, 3300}, []int{0, 1, 2}, nil, false, doctor.Good, "(3 of 3)"},
		{"the first are not", []int{100, 1900, 2200, 3300}, []int{2, 3}, nil, false, doctor.Good, "(2 of 2), but for 2 transitions"},
		{"a late one is not", []int{100, 1900, 2200, 3300}, []int{1, 2}, nil, false, doctor.Warning, "tells 1 of 2"},
		{"nothing is kept", []int{100, 1900, 2200, 3300}, nil, nil, false, doctor.Warning, "tells 0 of 2"},
		{"nothing is kept, others listen", []int{100, 1900, 2200, 3300}, nil, []doctor.Other{{PID: 1}}, false, doctor.Unknown, "someone else was connected"},
		{"nothing is kept, an agent listens", []int{100, 1900, 2200, 3300}, nil, nil, true, doctor.Unknown, "of a plegd agent"},
		{"all is kept, others don't listen", []int{100, 1900, 2200, 3300}, []int{0, 1, 2, 3}, []doctor.Other{{PID: 1}}, false, doctor.Good, "(4 of 4)"},
		{"the last before it is seen in it", []int{-100, 1100, 2200, 3200, 4300}, []int{3, 4}, nil, false, doctor.Good, "(2 of 2), but for 2 transitions"},
		{"the first was all", []int{3300}, nil, nil, false, doctor.Unknown, "too little"},
		{"nothing happened", nil, nil, nil, false, doctor.Unknown, "nothing happened"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := doctor.Observed{
				Runtime: "other", From: gap.Add(-30 * time.Second), To: gap, GapFrom: gap, GapTo: gap.Add(5500 * time.Millisecond), Others: tc.others,
				Socket: doctor.SocketState{Agent: tc.agent},
			}
			kind := runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
			for i, ms := range tc.at {
				at := gap.Add(time.Duration(ms) * time.Millisecond)
				list := at.Truncate(time.Second).Add(10 * time.Millisecond) // before it
				o.Facts = append(o.Facts, doctor.Fact{ID: fmt.Sprint(i), Type: kind, At: at.UnixNano(), Since: list, Seen: list.Add(time.Second)})
			}
			for _, i := range tc.told {
				o.After.Events = append(o.After.Events, doctor.Heard{ID: fmt.Sprint(i), Type: kind})
			}
			// Without an event before the gap the question would not be asked.
			o.Streams[0].Events = []doctor.Heard{{At: gap.Add(-10 * time.Second), ID: "x", Type: kind}}
			r := doctor.Judge(&o)
			i := slices.IndexFunc(r.Lines, func(l doctor.Line) bool { return l.Check == "reconnect" })
			if l := r.Lines[i]; l.Verdict != tc.verdict || !strings.Contains(l.Finding, tc.says) {
				t.Errorf("%s: %s, want %s, %s", l.Verdict, l.Finding, tc.verdict, tc.says)
			}
		})
	}
}

// Of a runtime that can't be reached nothing is known, so nothing is bad.
func TestSocketThatCannotBeUsed(t *testing.T) {
	for _, err := range []error{syscall.EACCES, syscall.ECONNREFUSED, errors.New("/x is not there")} {
		r := doctor.Judge(&doctor.Observed{SocketErr: err, Whole: true})
		if r.Verdict != doctor.Unknown || len(r.Lines) != 1 || r.Lines[0].Advice == "" || strings.Contains(r.Lines[0].Finding, "mode") {
			t.Errorf("%v:\n%s", err, text(r))
		}
	}
}
