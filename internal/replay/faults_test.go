package replay

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// during has something happen while a workload runs, some seconds after it began.
func during(seed uint64, happen func(t *testing.T, rt *simruntime.Runtime)) func(*testing.T, *simruntime.Runtime) {
	return func(t *testing.T, rt *simruntime.Runtime) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			time.Sleep(4 * time.Second)
			happen(t, rt)
		}()
		busy(seed, 11*time.Second)(t, rt)
		<-done
		time.Sleep(6 * time.Second)
	}
}

// rule has a fault for a time.
func rule(d time.Duration, rules ...simruntime.Rule) func(*testing.T, *simruntime.Runtime) {
	return func(t *testing.T, rt *simruntime.Runtime) {
		for _, r := range rules {
			h, err := rt.AddRule(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer h.Remove()
		}
		time.Sleep(d)
	}
}

// patience is that of the generators with one call.
const patience = 2 * time.Second

// Whatever a runtime does, a replay in the mode that was recorded tells of each entity
// what was told then.
func TestFaultsAreReplayed(t *testing.T) {
	for name, s := range map[string]scene{
		// Who opens a stream anew does so a little sooner or later than the recorded generator
		// did, and misses what came in between.
		"restart": {misses: 5, late: 2500 * time.Millisecond, happen: during(1, func(_ *testing.T, rt *simruntime.Runtime) { rt.Down(); time.Sleep(3 * time.Second); rt.Up() })},
		"stream ends": {misses: 5, late: 2500 * time.Millisecond, happen: during(2, func(_ *testing.T, rt *simruntime.Runtime) {
			for range 3 {
				rt.EndStreams(codes.OK)
				time.Sleep(2 * time.Second)
			}
		})},
		"stream breaks": {misses: 5, late: 2500 * time.Millisecond, happen: during(3, func(_ *testing.T, rt *simruntime.Runtime) {
			for range 3 {
				rt.EndStreams(codes.Internal)
				time.Sleep(2 * time.Second)
			}
		})},
		"lists fail":         {happen: during(4, rule(5*time.Second, simruntime.Rule{Method: "ListContainers", Code: codes.Internal, Message: "no"}))},
		"lists hang":         {happen: during(5, rule(6*time.Second, simruntime.Rule{Method: "ListPodSandbox", Hang: true}, simruntime.Rule{Method: "StreamPodSandboxes", Hang: true}))},
		"statuses hang":      {happen: during(6, rule(6*time.Second, simruntime.Rule{Method: "ContainerStatus", Hang: true}))},
		"calls are slow":     {happen: during(8, rule(6*time.Second, simruntime.Rule{Delay: 300 * time.Millisecond}))},
		"events are lost":    {happen: during(9, rule(6*time.Second, simruntime.Rule{Method: simruntime.MethodEvent, Drop: true, Probability: 0.5}))},
		"events are garbage": {happen: during(11, rule(6*time.Second, simruntime.Rule{Method: simruntime.MethodEvent, Raw: []byte{0x0a}, Probability: 0.5}))},
		"no stream":          {runtime: simruntime.Config{Profile: simruntime.Containerd16}, happen: busy(12, 11*time.Second)},
		"stream off":         {runtime: simruntime.Config{Profile: simruntime.CRIONoEvents}, happen: busy(13, 11*time.Second)},
		"stream competes":    {runtime: simruntime.Config{Profile: simruntime.Containerd17}, happen: busy(14, 11*time.Second)},
		"CRI-O":              {runtime: simruntime.Config{Profile: simruntime.CRIO}, happen: busy(15, 11*time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			s.config.RPCTimeout = patience
			r := s.record(t)
			got := replayed(t, r.path, pleg.Config{RelistPeriodMax: time.Second, RPCTimeout: patience})
			if s.misses > 0 { // of others TestSameBytes is enough
				again := replayed(t, r.path, pleg.Config{RelistPeriodMax: time.Second, RPCTimeout: patience})
				if a, b := text(t, got), text(t, again); !bytes.Equal(a, b) {
					t.Errorf("once more:\n%s", cmp.Diff(string(a), string(b)))
				}
			}
			want, had := words(r.events), words(got)
			missed := 0
			for id, said := range want {
				if had[id] != said {
					missed++
				}
			}
			if diff := cmp.Diff(want, had); missed > s.misses || s.misses == 0 && diff != "" {
				t.Errorf("of %d entities another thing is told (-recorded +replayed):\n%s", missed, diff)
			}
			late, veryLate := 0, 0
			at := times(r.events)
			for k, v := range times(got) {
				switch d := time.Duration(v - at[k]).Abs(); {
				case d > max(s.late, time.Second):
					veryLate++
					t.Logf("%s is told %v later or earlier", k, d)
				case d > lag:
					late++
				}
			}
			if veryLate > s.misses || late > len(got)/10 && s.misses == 0 {
				t.Errorf("of %d events %d are told more than %v later or earlier, %d much more", len(got), late, lag, veryLate)
			}
			generic := replayed(t, r.path, pleg.Config{Mode: pleg.ModeGeneric, RelistPeriod: 2 * time.Second, RPCTimeout: patience})
			toldNothingFalse(t, generic, r.history)
		})
	}
}

// toldNothingFalse checks what another mode tells against what happened.
func toldNothingFalse(t *testing.T, events []pleg.Event, history []simruntime.Transition) {
	t.Helper()
	codeOf, known := map[string]int32{}, map[string]bool{}
	for _, tr := range history {
		known[tr.ID] = true
		if tr.Step == simruntime.Exited || tr.Step == simruntime.StartFailed {
			codeOf[tr.ID] = tr.ExitCode
		}
	}
	deaths := 0
	for i := range events {
		ev := &events[i]
		code, died := codeOf[ev.EntityID()]
		if !known[ev.EntityID()] || ev.Type == store.ContainerDied && (!died || ev.ExitKnown && ev.ExitCode != code) {
			t.Errorf("%s of %s, code %d; it was %d", ev.Type, ev.EntityID(), ev.ExitCode, code)
		}
		if ev.Type == store.ContainerDied {
			deaths++
		}
	}
	if deaths < 3 {
		t.Errorf("only %d deaths", deaths)
	}
}
