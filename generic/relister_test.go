package generic

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// onePod answers as a runtime with one pod of one container.
func onePod() *fake {
	return &fake{
		sandboxes: func(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
			return []*runtimeapi.PodSandbox{{Id: "sb", Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}}}, nil
		},
		containers: func(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
			return []*runtimeapi.Container{{Id: "ct", PodSandboxId: "sb"}, {Id: ""}}, nil
		},
	}
}

func TestFullListsCarryTheirCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := onePod()
		inner := f.sandboxes
		f.sandboxes = func(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
			if filter != nil {
				t.Error("a full list has a filter")
			}
			time.Sleep(30 * time.Millisecond)
			return inner(ctx, filter)
		}
		g := start(t, Config{Runtime: f})
		time.Sleep(50 * time.Millisecond)
		seen := got[*arbiter.ListSeen](g.sink)
		if len(seen) != 1 || !seen[0].Scope.All() || len(seen[0].Sandboxes) != 1 || len(seen[0].Containers) != 1 {
			t.Fatalf("%+v", seen)
		}
		s, c := seen[0].SandboxCall, seen[0].ContainerCall
		if s.Sent.Tick == 0 || s.Answered.Tick <= s.Sent.Tick || c.Sent.Tick <= s.Answered.Tick || c.Answered.Tick <= c.Sent.Tick {
			t.Errorf("ticks: %+v, %+v", s, c)
		}
		if d := time.Duration(s.Answered.Since(s.Sent)); d != 30*time.Millisecond || s.Sent.Source != timestamps.FromRelist {
			t.Errorf("first call took %v, %v", d, s.Sent.Source)
		}
		if st := g.Status(); st.Malformed != 1 || st.Started != s.Sent || st.Succeeded != c.Answered || !st.Periodic || st.Period.State != Polling {
			t.Errorf("status: %+v", st)
		}
	})
}

// The period counts from the end of a relist, and a shorter one counts at once.
func TestPeriodCountsFromTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := onePod()
		var took atomic.Int64
		took.Store(int64(400 * time.Millisecond))
		f.containers = func(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
			time.Sleep(time.Duration(took.Load()))
			return nil, nil
		}
		began := time.Now()
		g := start(t, Config{Runtime: f, Base: time.Second, Max: 8 * time.Second, Random: func() float64 { return 0 }})
		at := func(want ...time.Duration) {
			t.Helper()
			seen := got[*arbiter.ListSeen](g.sink)
			if len(seen) != len(want) {
				t.Fatalf("%d lists, want %d", len(seen), len(want))
			}
			for i, w := range want {
				if d := time.Unix(0, seen[i].SandboxCall.Sent.Wall).Sub(began).Round(time.Millisecond); d != w {
					t.Errorf("list %d at %v, want %v", i, d, w)
				}
			}
		}
		time.Sleep(3 * time.Second)
		at(0, 1400*time.Millisecond) // the one of 2800 ms is under way
		g.StreamChanged(true)
		g.stretch()
		if p := g.Status().Period; p.Period != 8*time.Second || p.State != Stretched {
			t.Errorf("%+v", p)
		}
		time.Sleep(8 * time.Second) // 11 s; the last ended at 3.2 s
		at(0, 1400*time.Millisecond, 2800*time.Millisecond)
		time.Sleep(2 * time.Second) // the next began at 11.2 s and ended at 11.6 s
		at(0, 1400*time.Millisecond, 2800*time.Millisecond, 11200*time.Millisecond)
		took.Store(0)
		g.Shrink() // at 13 s, so one is due at once
		time.Sleep(100 * time.Millisecond)
		at(0, 1400*time.Millisecond, 2800*time.Millisecond, 11200*time.Millisecond, 13*time.Second)
		if err := g.UpdatePeriods(5*time.Second, 2*time.Second); err == nil {
			t.Error("contradictory periods were taken")
		}
		if err := g.UpdatePeriods(300*time.Millisecond, time.Second); err != nil {
			t.Error(err)
		}
		time.Sleep(300 * time.Millisecond)
		at(0, 1400*time.Millisecond, 2800*time.Millisecond, 11200*time.Millisecond, 13*time.Second, 13300*time.Millisecond)
	})
}

func TestFailedLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := status.Error(codes.ResourceExhausted, "grpc: received message larger than max")
		f := onePod()
		ok := f.containers
		broken := func(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) { return nil, fails }
		f.containers = broken
		g := start(t, Config{Runtime: f})
		g.StreamChanged(true)
		time.Sleep(5500 * time.Millisecond)
		failed := got[*arbiter.ListFailed](g.sink)
		if len(failed) != 6 || len(got[*arbiter.ListSeen](g.sink)) != 0 {
			t.Fatalf("%d failed: want one per period", len(failed))
		}
		if !strings.Contains(failed[0].Err, "too large") || !failed[0].Scope.All() || failed[0].At.Tick == 0 {
			t.Errorf("%+v", failed[0])
		}
		s := g.Status()
		if s.Failures != 6 || s.FailingSince.Wall == 0 || s.FailingSince.Since(s.Ended) != 0 || s.Err == "" || s.Succeeded.Tick != 0 {
			t.Errorf("%+v", s)
		}
		f.change(func() {
			f.containers = func(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
				return nil, status.Error(codes.Unavailable, "no socket")
			}
		})
		time.Sleep(time.Second)
		if failed = got[*arbiter.ListFailed](g.sink); !strings.Contains(failed[len(failed)-1].Err, "no socket") {
			t.Errorf("%+v", failed[len(failed)-1])
		}
		f.change(func() { f.containers = ok })
		time.Sleep(time.Second)
		if s := g.Status(); s.Failures != 0 || s.Err != "" || s.FailingSince.Tick != 0 || s.Succeeded.Tick == 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A full list that was asked for goes at once, but is never one that was sent
// before the question.
func TestListsOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.containers = func(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
			time.Sleep(500 * time.Millisecond)
			return nil, nil
		}
		g := start(t, Config{Runtime: f, NoPeriod: true})
		time.Sleep(time.Hour)
		if n := g.sink.len(); n != 0 || g.Status().Periodic {
			t.Fatalf("%d lists without a period", n)
		}
		g.Do([]arbiter.Action{{Kind: arbiter.ActList}})
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		if err := g.Relist(t.Context()); err != nil { // one is under way; it doesn't count
			t.Error(err)
		}
		if d := time.Since(began); d != 400*time.Millisecond+listGap+500*time.Millisecond {
			t.Errorf("answered after %v", d)
		}
		if n := len(got[*arbiter.ListSeen](g.sink)); n != 2 {
			t.Errorf("%d lists", n)
		}
		// Not before its time.
		now := g.clock.Mono()
		g.Do([]arbiter.Action{{Kind: arbiter.ActList, NotBefore: int64(now + 10*time.Second)}})
		time.Sleep(10*time.Second - 1)
		if n := len(got[*arbiter.ListSeen](g.sink)); n != 2 {
			t.Errorf("too early: %d lists", n)
		}
		time.Sleep(time.Second)
		if n := len(got[*arbiter.ListSeen](g.sink)); n != 3 {
			t.Errorf("%d lists", n)
		}
		// One list answers all that was due.
		for range 10 {
			g.Do([]arbiter.Action{{Kind: arbiter.ActList}})
		}
		time.Sleep(time.Minute)
		if n := len(got[*arbiter.ListSeen](g.sink)); n > 5 {
			t.Errorf("%d lists", n)
		}
	})
}

func TestRelistReturnsWhatCameOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := status.Error(codes.Internal, "boom")
		f := &fake{sandboxes: func(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
			return nil, boom
		}}
		g := start(t, Config{Runtime: f, NoPeriod: true})
		if err := g.Relist(t.Context()); !errors.Is(err, boom) {
			t.Error(err)
		}
		f.change(func() {
			f.sandboxes = func(ctx context.Context, _ *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
				return nil, hang(ctx)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Relist(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		done := make(chan error)
		go func() { done <- g.Relist(context.Background()) }()
		time.Sleep(time.Second)
		g.stop()
		if err := <-done; !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
		if err := g.Run(t.Context()); !errors.Is(err, ErrRan) {
			t.Error(err)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	clock := sysclock.New()
	calls := arbiter.NewCalls(clock, new(timestamps.Counter))
	for what, change := range map[string]func(*Config){
		"no runtime":       func(c *Config) { c.Runtime = nil },
		"no clock":         func(c *Config) { c.Clock = timestamps.Clock{} },
		"base above max":   func(c *Config) { c.Base, c.Max = time.Minute, time.Second },
		"negative base":    func(c *Config) { c.Base = -1 },
		"negative gap":     func(c *Config) { c.PodGap = -1 },
		"negative slots":   func(c *Config) { c.MaxInspections = -1 },
		"negative timeout": func(c *Config) { c.RPCTimeout = -1 },
	} {
		cfg := Config{Runtime: &fake{}, Sink: &sink{}, Calls: calls, Clock: clock}
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	r, err := New(Config{Runtime: &fake{}, Sink: &sink{}, Calls: calls, Clock: clock, Base: time.Hour})
	if err != nil || r.cfg.Max != time.Hour || r.cfg.MaxInspections != DefaultInspections {
		t.Errorf("%v, %+v", err, r.cfg)
	}
}

// Every kind of question, each kind of answer: one submission each.
func TestEveryQuestionIsAnsweredOnce(t *testing.T) {
	const uid = "u"
	byLabel := func(l map[string]string) bool { return l["io.kubernetes.pod.uid"] == uid }
	f := &fake{
		sandboxes: func(_ context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
			if byLabel(f.GetLabelSelector()) || f.GetId() == "sb" {
				return []*runtimeapi.PodSandbox{{Id: "sb"}}, nil
			}
			return nil, nil
		},
		containers: func(_ context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
			if f.GetPodSandboxId() == "broken" || f.GetLabelSelector()["io.kubernetes.pod.uid"] == "broken" {
				return nil, status.Error(codes.Internal, "boom")
			}
			if byLabel(f.GetLabelSelector()) || f.GetPodSandboxId() == "sb" {
				return []*runtimeapi.Container{{Id: "ct"}}, nil
			}
			return nil, nil
		},
		sandbox: func(_ context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
			switch id {
			case "sb":
				return &runtimeapi.PodSandboxStatus{Id: id}, nil
			case "sick":
				return nil, status.Error(codes.Internal, "boom")
			}
			return nil, status.Error(codes.NotFound, "")
		},
		container: func(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
			switch id {
			case "ct":
				return &runtimeapi.ContainerStatus{Id: id, ExitCode: 7}, nil
			case "other":
				return &runtimeapi.ContainerStatus{Id: "another"}, nil
			case "nothing":
				return nil, nil
			case "old-crio":
				return nil, status.Error(codes.Unknown, "container not found: not found")
			}
			return nil, status.Error(codes.NotFound, "")
		},
	}
	st := func(id string, kind store.Kind) arbiter.Action {
		return arbiter.Action{Kind: arbiter.ActStatus, ID: id, Entity: kind, PodKey: id}
	}
	for _, tc := range []struct {
		what   string
		action arbiter.Action
		kind   store.Kind // of the answer
		found  bool
		gone   bool
		err    string
		calls  int // in the span of the answer, in ticks
	}{
		{"container", st("ct", store.KindContainer), store.KindContainer, true, false, "", 1},
		{"sandbox", st("sb", store.KindSandbox), store.KindSandbox, true, false, "", 1},
		{"either, a container", st("ct", 0), store.KindContainer, true, false, "", 1},
		{"either, a sandbox", st("sb", 0), store.KindSandbox, true, false, "", 1},
		{"either, neither", st("x", 0), 0, false, true, "", 3}, // both calls
		{"either, unclear as a container", st("old-crio", 0), 0, false, false, "not found", 1},
		{"either, unclear as a sandbox", st("sick", 0), 0, false, false, "boom", 1},
		{"gone container", st("x", store.KindContainer), store.KindContainer, false, true, "", 1},
		{"gone by its text only", st("old-crio", store.KindContainer), store.KindContainer, false, false, "not found", 1},
		{"another's status", st("other", store.KindContainer), store.KindContainer, false, false, "not about the entity", 1},
		{"no status", st("nothing", store.KindContainer), store.KindContainer, false, false, "not about the entity", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := start(t, Config{Runtime: f, NoPeriod: true})
			g.Do([]arbiter.Action{tc.action})
			time.Sleep(time.Second)
			all := got[*arbiter.StatusSeen](g.sink)
			if len(all) != 1 || g.sink.len() != 1 {
				t.Fatalf("%s: %d answers", tc.what, g.sink.len())
			}
			a := all[0]
			if a.ID != tc.action.ID || a.Kind != tc.kind || (a.Item != nil) != tc.found || a.NotFound != tc.gone || (a.Err == "") != (tc.err == "") || !strings.Contains(a.Err, tc.err) {
				t.Errorf("%s: %+v", tc.what, a)
			}
			if d := int(a.Call.Answered.Tick - a.Call.Sent.Tick); d != tc.calls || a.Call.Sent.Source != timestamps.FromInspect {
				t.Errorf("%s: %d ticks, %v", tc.what, d, a.Call.Sent.Source)
			}
		})
	}
	for _, tc := range []struct {
		what   string
		action arbiter.Action
		scope  arbiter.Scope
		items  int
		fails  bool
	}{
		{"look", arbiter.Action{Kind: arbiter.ActLook, ID: "sb", PodKey: uid}, arbiter.Scope{Sandbox: "sb"}, 2, false},
		{"look at nothing", arbiter.Action{Kind: arbiter.ActLook, ID: "gone", PodKey: uid}, arbiter.Scope{Sandbox: "gone"}, 0, false},
		{"look fails", arbiter.Action{Kind: arbiter.ActLook, ID: "broken", PodKey: uid}, arbiter.Scope{Sandbox: "broken"}, 0, true},
		{"pod", arbiter.Action{Kind: arbiter.ActPod, ID: uid, PodKey: uid}, arbiter.Scope{PodUID: uid}, 2, false},
		{"pod that is gone", arbiter.Action{Kind: arbiter.ActPod, ID: "u2", PodKey: "u2"}, arbiter.Scope{PodUID: "u2"}, 0, false},
		{"pod fails", arbiter.Action{Kind: arbiter.ActPod, ID: "broken", PodKey: "broken"}, arbiter.Scope{PodUID: "broken"}, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := start(t, Config{Runtime: f, NoPeriod: true})
			g.Do([]arbiter.Action{tc.action})
			time.Sleep(time.Second)
			seen, failed := got[*arbiter.ListSeen](g.sink), got[*arbiter.ListFailed](g.sink)
			switch {
			case g.sink.len() != 1:
				t.Errorf("%s: %d answers", tc.what, g.sink.len())
			case tc.fails && (len(failed) != 1 || failed[0].Scope != tc.scope || failed[0].Err == ""):
				t.Errorf("%s: %+v", tc.what, failed)
			case !tc.fails && (len(seen) != 1 || seen[0].Scope != tc.scope || len(seen[0].Sandboxes)+len(seen[0].Containers) != tc.items):
				t.Errorf("%s: %+v", tc.what, seen)
			}
		})
	}
}
