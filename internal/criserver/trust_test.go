package criserver

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

func withPolicy(p Policy) option { return func(_ *pleg.Config, c *Config) { c.Untrusted = p } }

// bothPolicies runs a test with each.
func bothPolicies(t *testing.T, run func(*testing.T, Policy)) {
	for _, p := range Policies {
		t.Run(string(p), func(t *testing.T) { run(t, p) })
	}
}

// reads is how the cached methods end, each asked for a pod.
func (n *node) reads(sandbox, container string) map[string]error {
	n.t.Helper()
	ctx := n.t.Context()
	errs := map[string]error{}
	pods, err := n.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err == nil && len(pods.GetItems()) == 0 {
		err = errors.New("nothing listed")
	}
	errs["ListPodSandbox"] = err
	_, errs["PodSandboxStatus"] = n.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})
	_, errs["ContainerStatus"] = n.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: container})
	stream, err := n.cri.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{})
	items, err := drained(stream, err, (*runtimeapi.StreamContainersResponse).GetContainers)
	if err == nil && len(items) == 0 {
		err = errors.New("nothing listed")
	}
	errs["StreamContainers"] = err
	return errs
}

// untrusted checks that the answers come from the runtime, or say why there is
// none; and that in both cases the event stream does.
func (n *node) untrusted(p Policy, sandbox, container, why string) {
	n.t.Helper()
	before := n.calls()
	for method, err := range n.reads(sandbox, container) {
		switch {
		case p == ReadThrough && err != nil:
			n.t.Errorf("%s: %v", method, err)
		case p == Unavailable && (status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "can't be relied on") || !strings.Contains(err.Error(), why)):
			n.t.Errorf("%s: %v, want the reason %q", method, err, why)
		}
	}
	if made := n.calls() - before; p == ReadThrough && made < 4 {
		n.t.Errorf("%d calls to the runtime", made)
	}
	events, err := n.cri.GetContainerEvents(n.ctx(), &runtimeapi.GetEventsRequest{})
	if err == nil {
		_, err = events.Recv()
	}
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), why) {
		n.t.Errorf("events: %v, want the reason %q", err, why)
	}
	// What is passed through anyway is the runtime's own word.
	if _, err := n.cri.ContainerStatus(n.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: container, Verbose: true}); err != nil {
		n.t.Errorf("verbose: %v", err)
	}
}

// Before the first list of a run nobody knows what there is.
func TestNothingListedYet(t *testing.T) {
	bothPolicies(t, func(t *testing.T, p Policy) {
		rt, path := simtest.Start(t, simruntime.Config{})
		sandbox, container := makePod(t, rt, "a")
		// The generator's lists fail and those of others don't: its filter is nil.
		lists := simtest.Rule(t, rt, simruntime.Rule{Method: "StreamPodSandboxes", Times: 1, Hang: true})
		n := startOn(t, rt, path, withPolicy(p))
		eventually(t, "a list hangs", func() error {
			if rt.CallStats("StreamPodSandboxes").InFlight == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		n.untrusted(p, sandbox, container, "no relist of "+path+" has succeeded yet")
		lists.Remove()
		n.quiet()
		before := n.calls()
		for method, err := range n.reads(sandbox, container) {
			if err != nil {
				t.Errorf("%s: %v", method, err)
			}
		}
		if n.calls() != before {
			t.Errorf("%d calls to the runtime", n.calls()-before)
		}
	})
}

// What was known before a restart is not served until it is seen again, though
// the state file has it.
func TestRestoredIsNotServed(t *testing.T) {
	bothPolicies(t, func(t *testing.T, p Policy) {
		dir := t.TempDir()
		keep := func(g *pleg.Config, _ *Config) { g.StateDir, g.NodeName = dir, "n" }
		rt, path := simtest.Start(t, simruntime.Config{})
		sandbox, container := makePod(t, rt, "a")
		first, err := pleg.New(pleg.Config{Endpoint: path, StateDir: dir, NodeName: "n", RelistPeriod: time.Hour, RelistPeriodMax: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		stop := inBackground(t, first.Run)
		eventually(t, "the first agent has it", func() error {
			if h := first.Health(); !h.Listed || len(first.Entities()) != 2 || len(first.Status().Asks) > 0 {
				return errors.New("not yet")
			}
			return nil
		})
		stop()
		if err := rt.ExitContainer(container, 7, "Error"); err != nil {
			t.Fatal(err)
		}
		lists := simtest.Rule(t, rt, simruntime.Rule{Method: "StreamPodSandboxes", Times: 1, Hang: true})
		silent := simtest.Rule(t, rt, simruntime.Rule{Method: "GetContainerEvents", Hang: true})
		n := startOn(t, rt, path, withPolicy(p), keep)
		eventually(t, "it is restored", func() error {
			if e, ok := n.gen.Entity(container); !ok || !e.Restored || rt.CallStats("StreamPodSandboxes").InFlight == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		n.untrusted(p, sandbox, container, "no relist of")
		if p == ReadThrough {
			r, err := n.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: container})
			if err != nil || r.GetStatus().GetExitCode() != 7 {
				t.Errorf("%v, %v", r.GetStatus(), err)
			}
		}
		lists.Remove()
		silent.Remove()
		n.quiet()
		r, err := n.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: container})
		if err != nil || r.GetStatus().GetExitCode() != 7 {
			t.Errorf("%v, %v", r.GetStatus(), err)
		}
	})
}

// When relists fail for too long the cache is old. An open event stream ends
// then, as a runtime's own does when it dies.
func TestRelistsFail(t *testing.T) {
	bothPolicies(t, func(t *testing.T, p Policy) {
		n := start(t, simruntime.Config{}, withPolicy(p), func(g *pleg.Config, _ *Config) {
			g.RelistPeriod, g.RelistPeriodMax, g.RelistThreshold = 20*time.Millisecond, 20*time.Millisecond, 200*time.Millisecond
		})
		sandbox, container := n.pod("a")
		n.quiet()
		events, err := n.cri.GetContainerEvents(n.ctx(), &runtimeapi.GetEventsRequest{})
		n.must(err)
		_, err = events.Header()
		n.must(err)
		// The generator's own lists, without a filter, fail in their streaming form.
		broken := simtest.Rule(t, n.rt, simruntime.Rule{Method: "StreamPodSandboxes", Code: codes.Internal, Message: "broken"})
		eventually(t, "not ready", func() error {
			if n.gen.Health().Ready {
				return errors.New("ready")
			}
			return nil
		})
		_, err = events.Recv()
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the last relist that succeeded was") {
			t.Errorf("the open stream: %v", err)
		}
		if p == Unavailable {
			n.untrusted(p, sandbox, container, "the last relist that succeeded was")
		} else if _, err := n.cri.ListPodSandbox(t.Context(), nil); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "broken") {
			t.Errorf("the runtime's error: %v", err) // its word, and not what the cache has
		}
		broken.Remove()
		n.quiet()
		if _, err := n.cri.ListPodSandbox(t.Context(), nil); err != nil {
			t.Error(err)
		}
	})
}

// unopened is an event stream that must not be opened.
type unopened struct {
	grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]
	t *testing.T
}

func (u unopened) Context() context.Context { return u.t.Context() }

func (u unopened) SendHeader(metadata.MD) error {
	u.t.Error("the stream is opened")
	return nil
}

// A client that has seen its stream open may rely on it.
func TestDoubtfulStreamIsNotOpened(t *testing.T) {
	s, err := New(Config{Socket: filepath.Join(t.TempDir(), "s"), Source: func() (Source, string, error) { return nil, "", errors.New("nobody") }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.GetContainerEvents(nil, unopened{t: t}); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// While neither relists nor the stream bring anything new, clients are not told
// the old, though the agent still counts as ready.
func TestNothingNewComesIn(t *testing.T) {
	for _, mode := range []pleg.Mode{pleg.ModeHybrid, pleg.ModeGeneric} {
		t.Run(string(mode), func(t *testing.T) {
			n := start(t, simruntime.Config{}, withPolicy(Unavailable), func(g *pleg.Config, c *Config) {
				g.Mode, g.RelistPeriod, g.RelistPeriodMax = mode, 20*time.Millisecond, 20*time.Millisecond
				c.NoStream = mode == pleg.ModeGeneric
			})
			sandbox, container := n.pod("a")
			n.quiet()
			relists := simtest.Rule(t, n.rt, simruntime.Rule{Method: "StreamPodSandboxes", Code: codes.Internal, Message: "broken"})
			failing := func() bool { return has(n.gen.Health(), pleg.ConditionRelistFailing) }
			eventually(t, "relists fail", func() error {
				if !failing() {
					return errors.New("not yet")
				}
				return nil
			})
			if mode == pleg.ModeHybrid { // the stream alone still brings what is new
				for method, err := range n.reads(sandbox, container) {
					if err != nil {
						t.Errorf("%s: %v", method, err)
					}
				}
				simtest.Rule(t, n.rt, simruntime.Rule{Method: "GetContainerEvents", Code: codes.Internal, Message: "no more", Times: 1000})
				n.rt.EndStreams(codes.Internal)
				eventually(t, "the stream is down", func() error {
					if !has(n.gen.Health(), pleg.ConditionStreamDown) {
						return errors.New("not yet")
					}
					return nil
				})
			}
			if h := n.gen.Health(); !h.Ready {
				t.Fatalf("not ready: %+v", h)
			}
			for method, err := range n.reads(sandbox, container) {
				if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "nothing new comes in: relists are failing: ") {
					t.Errorf("%s: %v", method, err)
				}
			}
			relists.Remove()
			eventually(t, "relists work", func() error {
				if failing() {
					return errors.New("not yet")
				}
				return nil
			})
			for method, err := range n.reads(sandbox, container) {
				if err != nil {
					t.Errorf("%s: %v", method, err)
				}
			}
		})
	}
}

func has(h pleg.Health, condition string) bool {
	return slices.ContainsFunc(h.Conditions, func(c pleg.Condition) bool { return c.Name == condition })
}

// Before there is a runtime there is nothing to read through to.
func TestNoRuntimeYet(t *testing.T) {
	bothPolicies(t, func(t *testing.T, p Policy) {
		cfg := Config{Socket: filepath.Join(t.TempDir(), "cri.sock"), Untrusted: p}
		cfg.Source = func() (Source, string, error) { return nil, "", errors.New("nobody answers at /run/x") }
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		inBackground(t, s.Run)
		n := &node{t: t, cri: runtimeapi.NewRuntimeServiceClient(dial(t, cfg.Socket))}
		errs := n.reads("s", "c")
		_, errs["Version"] = n.cri.Version(t.Context(), nil)
		events, err := n.cri.GetContainerEvents(n.ctx(), nil)
		if err == nil {
			_, err = events.Recv()
		}
		errs["GetContainerEvents"] = err
		for method, err := range errs {
			if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no runtime is known yet: nobody answers at /run/x") {
				t.Errorf("%s: %v", method, err)
			}
		}
	})
}

// A container whose exit a list saw and no status yet is not shown as it was
// before, nor as ended without a code.
func TestExitThatIsNotReadYet(t *testing.T) {
	bothPolicies(t, func(t *testing.T, p Policy) {
		n := start(t, simruntime.Config{}, withPolicy(p))
		_, container := n.pod("a")
		n.quiet()
		simtest.Rule(t, n.rt, simruntime.Rule{Method: simruntime.MethodEvent, Drop: true})
		simtest.Rule(t, n.rt, simruntime.Rule{Method: "ContainerStatus", ID: container, Code: codes.Internal, Message: "broken"})
		n.must(n.rt.ExitContainer(container, 5, "Error"))
		n.must(n.gen.Relist(t.Context()))
		l, err := n.cri.ListContainers(t.Context(), nil)
		if err != nil || len(l.GetContainers()) != 1 || l.GetContainers()[0].GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			t.Errorf("list: %v, %v", l, err)
		}
		_, err = n.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: container})
		want := codes.Internal
		if p == Unavailable {
			want = codes.Unavailable
		}
		if status.Code(err) != want {
			t.Errorf("status: %v", err)
		}
	})
}

// A stopped sandbox is asked for until its address is gone, and then never again.
func TestStoppedSandbox(t *testing.T) {
	n := start(t, simruntime.Config{}, withPolicy(Unavailable)) // it is no doubt
	sandbox, container := n.pod("a")
	n.must(n.rt.ExitContainer(container, 0, ""))
	said := func(s *runtimeapi.PodSandboxStatus) { s.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: "10.9.9.9"} }
	simtest.Rule(t, n.rt, simruntime.Rule{Method: simruntime.MethodEvent, Edit: func(m proto.Message) {
		if ev := m.(*runtimeapi.ContainerEventResponse); ev.GetContainerEventType() == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT {
			ev.PodSandboxStatus = proto.CloneOf(ev.PodSandboxStatus)
			said(ev.PodSandboxStatus)
		}
	}})
	n.must(n.rt.StopPodSandbox(sandbox))
	network := func(ip string) {
		n.must(n.rt.EditSandbox(sandbox, func(s *runtimeapi.PodSandboxStatus) {
			s.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: ip}
		}))
	}
	network("10.9.9.9")
	n.quiet()
	ip := func() string {
		r, err := n.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})
		n.must(err)
		return r.GetStatus().GetNetwork().GetIp()
	}
	before := n.calls()
	if got := ip(); got != "10.9.9.9" || n.calls() != before+1 {
		t.Errorf("%q, %d calls", got, n.calls()-before)
	}
	network("")
	eventually(t, "what was kept is old", func() error {
		if ip() != "" {
			return errors.New("still there")
		}
		return nil
	})
	time.Sleep(freshFor)
	before = n.calls()
	if got := ip(); got != "" || n.calls() != before {
		t.Errorf("%q, %d calls", got, n.calls()-before)
	}
}

func TestDoubts(t *testing.T) {
	seen := func(change func(*pleg.Entity)) *pleg.Entity {
		e := &pleg.Entity{Record: &store.Record{Kind: store.KindContainer, ID: "c", Reported: 1}}
		change(e)
		return e
	}
	for _, tc := range []struct {
		e              *pleg.Entity
		listed, status string
	}{
		{seen(func(*pleg.Entity) {}), "", ""},
		{seen(func(e *pleg.Entity) { e.Restored = true }), "earlier run", "earlier run"},
		{seen(func(e *pleg.Entity) { e.Reported = store.ReportedNone }), "not read yet", "not read yet"},
		{seen(func(e *pleg.Entity) { e.Asked = store.ReasonRemoval }), "(removal)", "(removal)"},
		{seen(func(e *pleg.Entity) { e.Asked = store.ReasonContradict }), "(contradict)", "(contradict)"},
		{seen(func(e *pleg.Entity) { e.Asked = store.ReasonRegress }), "(regress)", "(regress)"},
		{seen(func(e *pleg.Entity) { e.Asked = store.ReasonDetails | store.ReasonExit137 }), "", "(details, exit_137)"},
		{seen(func(e *pleg.Entity) { e.Err = "broken" }), "", "broken"},
	} {
		for got, want := range map[doubt]string{doubtListed(tc.e): tc.listed, doubtStatus(tc.e): tc.status} {
			if (got == "") != (want == "") && tc.listed == tc.status || !strings.Contains(string(got), want) && tc.listed == tc.status {
				t.Errorf("%+v: %q, want %q", tc.e, got, want)
			}
		}
		if got := doubtListed(tc.e); (got == "") != (tc.listed == "") {
			t.Errorf("listed: %q, want %q", got, tc.listed)
		}
		if got := doubtStatus(tc.e); (got == "") != (tc.status == "") || !strings.Contains(string(got), tc.status) {
			t.Errorf("status: %q, want %q", got, tc.status)
		}
	}
}

// A status that is in the cache in part, or of another state, is not served.
func TestStatusesThatAreNotWhole(t *testing.T) {
	rest := func(m proto.Message) string {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	container := func(change func(*store.Record)) bool {
		r := &store.Record{Kind: store.KindContainer, ID: "c", Reported: 2, Exit: store.Exit{FinishedAt: 9, Code: 1}, Rest: rest(&runtimeapi.ContainerStatus{Id: "c"})}
		r.Evidence.Rest.State, r.Evidence.Reported.State = store.StateDown, store.StateDown
		change(r)
		return containerStatus(&pleg.Entity{Record: r}) != nil
	}
	sandbox := func(change func(*store.Record)) bool {
		r := &store.Record{Kind: store.KindSandbox, ID: "s", Reported: 1, Rest: rest(&runtimeapi.PodSandboxStatus{Id: "s"})}
		r.Evidence.Rest.State, r.Evidence.Reported.State = store.StateDown, store.StateDown
		change(r)
		st := sandboxStatus(&pleg.Entity{Record: r})
		return st != nil && st.GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	for what, got := range map[string]bool{
		"container": container(func(*store.Record) {}), "sandbox": sandbox(func(*store.Record) {}),
		"running": container(func(r *store.Record) {
			r.Reported, r.Exit = 1, store.Exit{}
			r.Evidence.Rest.State, r.Evidence.Reported.State = store.StateUp, store.StateUp
		}),
	} {
		if !got {
			t.Errorf("%s: not there", what)
		}
	}
	for what, got := range map[string]bool{
		"no status":             container(func(r *store.Record) { r.Rest = "" }),
		"exit without its time": container(func(r *store.Record) { r.Exit = store.Exit{} }),
		"of another state":      container(func(r *store.Record) { r.Evidence.Rest.State = store.StateUp }),
		"unknown": container(func(r *store.Record) {
			r.Reported = 3
			r.Evidence.Rest.State, r.Evidence.Reported.State = 0, 0
		}),
		"no such state": container(func(r *store.Record) {
			r.Reported = 9
			r.Evidence.Rest.State, r.Evidence.Reported.State = 0, 0
		}),
		"text that was cut":         container(func(r *store.Record) { r.Exit.Message = strings.Repeat("x", 8<<10) }),
		"sandbox without a status":  sandbox(func(r *store.Record) { r.Rest = "" }),
		"sandbox of another state":  sandbox(func(r *store.Record) { r.Evidence.Rest.State = store.StateUp }),
		"sandbox without a network": sandbox(func(r *store.Record) { r.IPs = []string{"10.0.0.1"} }),
	} {
		if got {
			t.Errorf("%s: served", what)
		}
	}
}
