package simruntime_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	sim "github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// inBubble runs a test in virtual time on a runtime served in memory.
func inBubble(t *testing.T, cfg sim.Config, f func(t *testing.T, rt *sim.Runtime, c runtimeapi.RuntimeServiceClient, sub func() *reader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rt := simtest.New(t, cfg)
		conn := simtest.Bufconn(t, rt)
		f(t, rt, runtimeapi.NewRuntimeServiceClient(conn), func() *reader {
			r := subscribe(t, conn)
			synctest.Wait()
			return r
		})
	})
}

// read returns what has arrived by now, as ids.
func (r *reader) read() []string {
	synctest.Wait()
	var ids []string
	for {
		select {
		case ev, ok := <-r.events:
			if !ok {
				return ids
			}
			ids = append(ids, ev.ContainerId)
		default:
			return ids
		}
	}
}

func inject(rt *sim.Runtime, ids ...string) {
	for _, id := range ids {
		rt.InjectEvent(&sim.Event{ContainerId: id})
	}
}

// exits makes a pod with running containers of the given names and returns a
// function that lets one exit, which is one event, and a map from id to name.
func exits(t *testing.T, rt *sim.Runtime, names ...string) (exit func(string), name func([]string) string) {
	t.Helper()
	sandbox := must(rt.RunPodSandbox(podSpec))
	ids, back := map[string]string{}, map[string]string{}
	for _, n := range names {
		ids[n] = must(rt.CreateContainer(sandbox, sim.ContainerSpec{Name: n}))
		back[ids[n]] = n
		check(t, rt.StartContainer(ids[n]))
	}
	return func(n string) { t.Helper(); check(t, rt.ExitContainer(ids[n], 1, "")) },
		func(got []string) string {
			s := ""
			for _, id := range got {
				s += back[id]
			}
			return s
		}
}

// TestEventRules gives six exits a to f, 1 s apart, through one rule and looks
// at what comes when.
func TestEventRules(t *testing.T) {
	for name, tc := range map[string]struct {
		rule  sim.Rule
		steps []string // what came after each exit
		later string   // what came in the minute after the last
	}{
		"none":                    {sim.Rule{Times: 1}, []string{"a", "b", "c", "d", "e", "f"}, ""},
		"drop all":                {sim.Rule{Drop: true}, []string{"", "", "", "", "", ""}, ""},
		"drop second of each two": {sim.Rule{Drop: true, Skip: 1, Every: 2}, []string{"a", "", "c", "", "e", ""}, ""},
		"drop twice":              {sim.Rule{Drop: true, Times: 2}, []string{"", "", "c", "d", "e", "f"}, ""},
		"duplicate":               {sim.Rule{Duplicate: 2, Times: 1}, []string{"aaa", "b", "c", "d", "e", "f"}, ""},
		"late duplicate":          {sim.Rule{Duplicate: 1, Times: 1, Delay: 2500 * time.Millisecond}, []string{"a", "b", "ca", "d", "e", "f"}, ""},
		"delay one":               {sim.Rule{Delay: 1500 * time.Millisecond, Times: 1}, []string{"", "ba", "c", "d", "e", "f"}, ""},
		"delay all alike":         {sim.Rule{Delay: 10 * time.Second}, []string{"", "", "", "", "", ""}, "abcdef"},
		"reorder":                 {sim.Rule{Hold: 2, Times: 1}, []string{"", "b", "ca", "d", "e", "f"}, ""},
		"reorder pairs":           {sim.Rule{Hold: 1, Every: 2}, []string{"", "ba", "", "dc", "", "fe"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, _ runtimeapi.RuntimeServiceClient, sub func() *reader) {
				r := sub()
				exit, names := exits(t, rt, "a", "b", "c", "d", "e", "f")
				r.read()
				tc.rule.Method = sim.MethodEvent
				simtest.Rule(t, rt, tc.rule)
				var steps []string
				for _, n := range []string{"a", "b", "c", "d", "e", "f"} {
					exit(n)
					synctest.Wait()
					time.Sleep(time.Second - time.Nanosecond)
					steps = append(steps, names(r.read()))
					time.Sleep(time.Nanosecond)
				}
				time.Sleep(time.Minute)
				if later := names(r.read()); !slices.Equal(steps, tc.steps) || later != tc.later {
					t.Errorf("came %q then %q, want %q then %q", steps, later, tc.steps, tc.later)
				}
				if h := rt.EventStats().Held; h != 0 {
					t.Errorf("%d events are still held", h)
				}
			})
		})
	}
}

func TestEventRuleByIDWhereAndProbability(t *testing.T) {
	inBubble(t, sim.Config{Seed: 3}, func(t *testing.T, rt *sim.Runtime, _ runtimeapi.RuntimeServiceClient, sub func() *reader) {
		r := sub()
		exit, names := exits(t, rt, "a", "b", "c")
		r.read()
		history := rt.History()
		idOf := func(name string) string {
			return history[slices.IndexFunc(history, func(tr sim.Transition) bool { return tr.Name == name })].ID
		}
		simtest.Rule(t, rt, sim.Rule{Method: sim.MethodEvent, ID: idOf("a"), Drop: true})
		simtest.Rule(t, rt, sim.Rule{Method: sim.MethodEvent, Drop: true, Where: func(op sim.Op) bool {
			return op.Event.ContainerEventType == stopped && op.ID == idOf("b")
		}})
		exit("a")
		exit("b")
		exit("c")
		if got := names(r.read()); got != "c" {
			t.Errorf("came %q, want c", got)
		}
		if st := rt.EventStats(); st.Dropped != 2 {
			t.Errorf("stats: %+v", st)
		}
	})

	drops := func() (n int) {
		rt := simtest.New(t, sim.Config{Seed: 3})
		h := simtest.Rule(t, rt, sim.Rule{Method: sim.MethodEvent, Probability: 0.25, Drop: true})
		for i := range 500 {
			spec := podSpec
			spec.Attempt = uint32(i)
			must(rt.RunPodSandbox(spec))
		}
		return h.Acted()
	}
	if first := drops(); first < 200 || first > 300 || first != drops() {
		t.Errorf("a quarter of 1000 events: %d dropped, and then %d", first, drops())
	}
}

func TestEditedEventsLeaveTheTruthAlone(t *testing.T) {
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, _ runtimeapi.RuntimeServiceClient, sub func() *reader) {
		r := sub()
		_, app := pod(t, rt, "u1")
		r.read()
		simtest.Rule(t, rt, sim.Rule{Method: sim.MethodEvent, Edit: func(m proto.Message) {
			ev := m.(*sim.Event)
			ev.PodSandboxStatus = nil
			ev.ContainersStatuses[0].State = 7
			ev.CreatedAt /= int64(time.Second)
		}})
		check(t, rt.ExitContainer(app, 3, ""))
		ev := r.next()
		if ev.PodSandboxStatus != nil || ev.ContainersStatuses[0].State != 7 || ev.CreatedAt > 1e11 {
			t.Errorf("event: %v", ev)
		}
		if st := must(rt.ContainerStatus(app)); st.State != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Errorf("truth: %v", st)
		}
	})
}

func TestFrozenEventsComeInOrderWhenReleased(t *testing.T) {
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, _ runtimeapi.RuntimeServiceClient, sub func() *reader) {
		r := sub()
		exit, names := exits(t, rt, "a", "b")
		r.read()
		h := simtest.Rule(t, rt, sim.Rule{Method: sim.MethodEvent, Hang: true})
		exit("a")
		exit("b")
		time.Sleep(time.Hour)
		if got := r.read(); got != nil || rt.EventStats().Held != 2 {
			t.Errorf("came while held: %v", got)
		}
		h.Remove()
		h.Remove()
		if got := names(r.read()); got != "ab" {
			t.Errorf("came %q, want ab", got)
		}
	})
}

func TestCallRules(t *testing.T) {
	ms := time.Millisecond
	for name, tc := range map[string]struct {
		rule  sim.Rule
		codes []codes.Code // of three status calls with 1 s of patience each
		took  []time.Duration
		// how long the runtime was busy with the first
		busy time.Duration
	}{
		"none":             {sim.Rule{Method: "ListContainers", Code: codes.Internal}, []codes.Code{0, 0, 0}, []time.Duration{0, 0, 0}, 0},
		"code":             {sim.Rule{Code: codes.Internal}, []codes.Code{13, 13, 13}, []time.Duration{0, 0, 0}, 0},
		"code once":        {sim.Rule{Code: codes.NotFound, Times: 1}, []codes.Code{5, 0, 0}, []time.Duration{0, 0, 0}, 0},
		"odd calls slow":   {sim.Rule{Delay: 300 * ms, Every: 2}, []codes.Code{0, 0, 0}, []time.Duration{300 * ms, 0, 300 * ms}, 300 * ms},
		"too slow":         {sim.Rule{Delay: 3 * time.Second, Times: 1}, []codes.Code{4, 0, 0}, []time.Duration{time.Second, 0, 0}, time.Second},
		"stuck in kernel":  {sim.Rule{Delay: 3 * time.Second, IgnoreCancel: true, Times: 1}, []codes.Code{4, 0, 0}, []time.Duration{time.Second, 0, 0}, 3 * time.Second},
		"hangs":            {sim.Rule{Hang: true, Times: 1}, []codes.Code{4, 0, 0}, []time.Duration{time.Second, 0, 0}, time.Second},
		"hangs for good":   {sim.Rule{Hang: true, IgnoreCancel: true, Times: 1}, []codes.Code{4, 0, 0}, []time.Duration{time.Second, 0, 0}, 10 * time.Second},
		"slow then error":  {sim.Rule{Delay: 100 * ms, Code: codes.Unavailable}, []codes.Code{14, 14, 14}, []time.Duration{100 * ms, 100 * ms, 100 * ms}, 100 * ms},
		"answer is lost":   {sim.Rule{After: true, Code: codes.Unavailable, Skip: 2}, []codes.Code{0, 0, 14}, []time.Duration{0, 0, 0}, 0},
		"EOF is no answer": {sim.Rule{EOF: true}, []codes.Code{13, 13, 13}, []time.Duration{0, 0, 0}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, c runtimeapi.RuntimeServiceClient, _ func() *reader) {
				_, app := pod(t, rt, "u1")
				if tc.rule.Method == "" {
					tc.rule.Method, tc.rule.ID = "ContainerStatus", app
				}
				h := simtest.Rule(t, rt, tc.rule)
				for i := range tc.codes {
					start := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, err := c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: app})
					cancel()
					wantCode(t, err, tc.codes[i])
					if took := time.Since(start); took != tc.took[i] {
						t.Errorf("call %d took %v, want %v", i, took, tc.took[i])
					}
				}
				time.Sleep(10*time.Second - time.Since(rt.Calls()[0].Start))
				h.Remove()
				synctest.Wait()
				first := rt.Calls()[0]
				if busy := first.End.Sub(first.Start); busy != tc.busy || first.ID != app {
					t.Errorf("the runtime was busy for %v with %s, want %v", busy, first.ID, tc.busy)
				}
			})
		})
	}
}

// TestStaleAnswer shows the two ways of being late: After has already looked.
func TestStaleAnswer(t *testing.T) {
	for after, want := range map[bool]runtimeapi.ContainerState{
		true:  runtimeapi.ContainerState_CONTAINER_RUNNING,
		false: runtimeapi.ContainerState_CONTAINER_EXITED,
	} {
		inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, c runtimeapi.RuntimeServiceClient, _ func() *reader) {
			_, app := pod(t, rt, "u1")
			simtest.Rule(t, rt, sim.Rule{Method: "ContainerStatus", After: after, Delay: time.Second})
			go func() {
				time.Sleep(500 * time.Millisecond)
				_ = rt.ExitContainer(app, 1, "")
			}()
			st := must(c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: app})).Status
			if st.State != want {
				t.Errorf("after %v: %v, want %v", after, st.State, want)
			}
		})
	}
}

func TestDoAndEditOfLists(t *testing.T) {
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, c runtimeapi.RuntimeServiceClient, _ func() *reader) {
		sandbox, _ := pod(t, rt, "u1")
		// The pod is removed between the two calls of a relist.
		h := simtest.Rule(t, rt, sim.Rule{Method: "ListContainers", Times: 1, Do: func(sim.Op) { _ = rt.RemovePodSandbox(sandbox) }})
		if n := len(must(c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})).Items); n != 1 {
			t.Errorf("%d sandboxes", n)
		}
		if n := len(must(c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})).Containers); n != 0 {
			t.Errorf("%d containers", n)
		}
		if h.Acted() != 1 {
			t.Errorf("acted %d times", h.Acted())
		}

		_, app := pod(t, rt, "u2")
		simtest.Rule(t, rt, sim.Rule{Method: "ListContainers", Edit: func(m proto.Message) {
			m.(*runtimeapi.ListContainersResponse).Containers[0].State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		}})
		listed := must(c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})).Containers[0]
		status := must(c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: app})).Status
		if listed.State != runtimeapi.ContainerState_CONTAINER_UNKNOWN || status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("listed %v, status %v", listed.State, status.State)
		}
	})
}

func TestStreamEndings(t *testing.T) {
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, c runtimeapi.RuntimeServiceClient, sub func() *reader) {
		one, two := sub(), sub()
		rt.EndStreams(codes.OK)
		if err := one.end(); !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v, want EOF", err)
		}
		if err := two.end(); !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v, want EOF", err)
		}
		three := sub()
		inject(rt, "x")
		rt.EndStreams(codes.Internal)
		inject(rt, "y")
		if got := three.read(); !slices.Equal(got, []string{"x"}) {
			t.Errorf("got %v before the end, want x", got)
		}
		wantCode(t, three.end(), codes.Internal)
		four := sub()
		if got := four.read(); !slices.Equal(got, []string{"y"}) {
			t.Errorf("replayed %v, want y", got)
		}

		for name, tc := range map[string]struct {
			rule sim.Rule
			want codes.Code
			eof  bool
		}{
			"unimplemented": {sim.Rule{Code: codes.Unimplemented, Message: "unknown method"}, codes.Unimplemented, false},
			"immediate EOF": {sim.Rule{EOF: true}, 0, true},
			"slow refusal":  {sim.Rule{Delay: time.Minute, Code: codes.Unavailable}, codes.Unavailable, false},
		} {
			tc.rule.Method = sim.MethodGetContainerEvents
			h := simtest.Rule(t, rt, tc.rule)
			err := sub().end2(t)
			if tc.eof && !errors.Is(err, io.EOF) {
				t.Errorf("%s: %v", name, err)
			} else if !tc.eof {
				wantCode(t, err, tc.want)
			}
			h.Remove()
		}
		_ = c
	})
}

// end2 is end with more patience, which costs nothing in virtual time.
func (r *reader) end2(t *testing.T) error {
	t.Helper()
	time.Sleep(2 * time.Minute)
	return r.end()
}

func TestContradictoryRulesAreRefused(t *testing.T) {
	rt := simtest.New(t, sim.Config{})
	for name, rule := range map[string]sim.Rule{
		"negative":             {Times: -1},
		"probability":          {Probability: 1.5},
		"event with code":      {Method: sim.MethodEvent, Code: codes.Internal},
		"event with after":     {Method: sim.MethodEvent, After: true, Delay: 1},
		"dropped call":         {Method: "Version", Drop: true},
		"dropped and repeated": {Method: sim.MethodEvent, Drop: true, Duplicate: 1},
		"EOF and code":         {EOF: true, Code: codes.Internal},
		"ignores nothing":      {IgnoreCancel: true, Code: codes.Internal},
		"raw error":            {Method: "Version", Raw: []byte{1}, Code: codes.Internal},
		"raw end":              {Method: "StreamContainers", Raw: []byte{1}, EOF: true},
		"dropped and raw":      {Method: sim.MethodEvent, Drop: true, Raw: []byte{1}},
	} {
		if _, err := rt.AddRule(rule); !errors.Is(err, sim.ErrRule) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClearRulesReleasesWhatHangs(t *testing.T) {
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, c runtimeapi.RuntimeServiceClient, _ func() *reader) {
		simtest.Rule(t, rt, sim.Rule{Hang: true, IgnoreCancel: true})
		done := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := c.Version(context.Background(), &runtimeapi.VersionRequest{})
				done <- err
			}()
		}
		synctest.Wait()
		if s := rt.CallStats(""); s.InFlight != 3 {
			t.Errorf("stats: %+v", s)
		}
		rt.ClearRules()
		for range 3 {
			check(t, <-done)
		}
		synctest.Wait()
		if s := rt.CallStats("Version"); s.InFlight != 0 || s.MaxInFlight != 3 || s.ByCode[codes.OK] != 3 {
			t.Errorf("stats: %+v", s)
		}
		if n := sim.MaxOverlap(rt.Calls()); n != 3 {
			t.Errorf("overlap %d", n)
		}
		if m := rt.Methods(); !slices.Equal(m, []string{"Version"}) {
			t.Errorf("methods %v", m)
		}
	})
}
