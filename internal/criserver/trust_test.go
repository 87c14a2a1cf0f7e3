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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
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
	return errors.New("it must not be")
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
