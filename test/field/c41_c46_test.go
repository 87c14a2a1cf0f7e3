package field_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// TestC41_RuntimeNoticesADeathLate: the container died while the runtime was
// down; the runtime says RUNNING for some time and then EXITED, with a finish
// time that is older than much that was seen since, and no event.
func TestC41_RuntimeNoticesADeathLate(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	f.start()
	f.trusted()
	f.settled()
	f.rt.Down()
	died := time.Now().UnixNano()
	f.until("the stream's end", func() bool { return f.g().Status().Stream.State == "down" })
	f.rt.Up()
	f.trustedJust()
	f.wants(x, "Created", "Started")
	misses := f.metric("stream_misses_total")
	f.must(f.rt.EditContainer(x, func(c *runtimeapi.ContainerStatus) { exit(c, 1); c.FinishedAt = died }))
	f.quiet()
	f.soon(x, "Died/1")
	if ev := f.event1(x, store.ContainerDied); ev.OccurredAt != died && ev.ExitKnown {
		t.Errorf("it died at %d, not %s", died, describe(ev))
	}
	if v, _ := f.shown(x); v.Finished != died || v.Exit != "1" {
		t.Errorf("shown: %+v", v)
	}
	f.until("the miss to be counted", func() bool { return f.metric("stream_misses_total") > misses })
	f.wants(x, "Created", "Started", "Died/1")
	f.neverUnready()
	f.finish()
}

// TestC41Variation_RuntimeNoticesASandboxLate: the sandbox and its container end
// while the runtime is frozen and then killed; it comes back with the container
// gone, and with the sandbox READY for some more relists.
func TestC41Variation_RuntimeNoticesASandboxLate(t *testing.T) {
	t.Parallel()
	f := newField(t, func(s *setup) { s.agent.RPCTimeout = 500 * time.Millisecond })
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	_, other := f.pod("other")
	f.start()
	f.trusted()
	f.soon(other, "Started")
	f.settled()
	f.rt.Freeze()
	f.until("a list that fails", func() bool { return f.g().Status().Relist.Failures > 0 })
	f.never(x, "Died", "Removed")
	f.rt.Kill()
	f.drop(x)
	f.rt.Up()
	f.streamUp()
	f.quiet()
	f.wants(x, "Created", "Started", "Died/unknown", "Removed")
	f.wants(a, "Created", "Ready")
	f.must(f.rt.EditSandbox(a, func(s *runtimeapi.PodSandboxStatus) { s.State = sbNotReady }))
	f.quiet()
	f.soon(a, "NotReady")
	f.must(f.rt.DropSandbox(a))
	f.quiet()
	f.wants(a, "Created", "Ready", "NotReady", "Removed")
	f.wants(other, "Created", "Started")
	f.finish()
}

// TestC43_NumbersOutsideTheEnums are states that say nothing, shown by their
// numbers, and an event of an unknown type is a hint to look.
func TestC43_NumbersOutsideTheEnums(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", 7, func(c *runtimeapi.ContainerStatus) { c.StartedAt = 0 })
	b := f.sandbox("B", "U2", "10.0.0.6", func(s *runtimeapi.PodSandboxStatus) { s.State = 5 })
	y := f.container("Y", b, "U2", running)
	c := f.sandbox("C", "U3", "10.0.0.7")
	f.start()
	f.ready()
	f.soon(y, "Started")
	f.soon(c, "Ready")
	f.until("X to be shown", func() bool { v, ok := f.shown(x); return ok && v.Reported == "7" && v.State == "created" })
	f.until("B to be shown", func() bool { v, ok := f.shown(b); return ok && v.Reported == "5" })
	f.never(x, "Started", "Died")
	f.never(b, "Ready", "NotReady")
	f.queueEmpty() // unknown states are asked about only so often
	f.trustedJust()
	f.settled()
	before := f.lists()
	f.runs(x)
	f.event(9, x, a)
	f.soon(x, "Started")
	if n := f.lists() - before; n > 1 {
		t.Errorf("it took %d lists", n)
	}
	f.must(f.rt.SetSandboxState(b, sbReady))
	f.quiet()
	f.soon(b, "Ready")
	f.neverUnready()
	f.finish()
}

// TestC43Variation_NumbersOfOtherKinds: negative and enormous ones, for what had
// a state before, and events of unknown types for ids that nobody knows.
func TestC43Variation_NumbersOfOtherKinds(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	y := f.container("Y", a, "U1", exited, code(3))
	f.start()
	f.trusted()
	f.soon(y, "Died/3")
	f.settled()
	for _, n := range []int32{-1, 1 << 30, -1 << 31} {
		f.must(f.rt.SetContainerState(x, runtimeapi.ContainerState(n)))
		f.must(f.rt.SetContainerState(y, runtimeapi.ContainerState(n)))
		f.must(f.rt.SetSandboxState(a, runtimeapi.PodSandboxState(n)))
		f.event(runtimeapi.ContainerEventType(n), long("nobody"), long("nowhere"))
		f.event(runtimeapi.ContainerEventType(n), x, a)
		f.quiet()
	}
	f.must(f.rt.SetContainerState(x, running))
	f.must(f.rt.SetContainerState(y, exited))
	f.must(f.rt.SetSandboxState(a, sbReady))
	f.quiet()
	f.queueEmpty()
	f.wants(x, "Created", "Started", "unknown")
	f.wants(y, "Created", "Started", "Died/3", "unknown")
	f.wants(a, "Created", "Ready", "unknown")
	f.wants(long("nobody"))
	f.neverUnready()
	f.finish()
}

// TestC46_ListsTooLargeForAMessage: 9 MiB of list and 6 MiB of event just work;
// lists that are refused for their size are no empty lists, the stream goes on
// telling, and health says why. A fallback to narrower lists is optional; the
// streaming lists are one (below).
func TestC46_ListsTooLargeForAMessage(t *testing.T) {
	t.Parallel()
	const MiB = 1 << 20
	f := newField(t, func(s *setup) {
		s.sim.Profile = simruntime.Profile{Name: "containerd", Version: "v2.1.0", NoStreamingLists: true}
		s.agent.RelistThreshold = size(2*time.Second, 30*time.Second) // 4,000 containers are no matter of two seconds for a busy machine
		s.agent.RPCTimeout = 10 * time.Second
	})
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	for i := range size(1, 40) { // of each pod one at a time is inspected
		uid := fmt.Sprintf("N%d", i)
		s := f.sandbox("s"+uid, uid, "", func(s *runtimeapi.PodSandboxStatus) { s.State = sbNotReady })
		for j := range 100 {
			f.container(fmt.Sprintf("n%d-%d", i, j), s, uid, exited, attempt(uint32(j)))
		}
	}
	large := f.rule(simruntime.Rule{Method: "ListContainers", Times: 2, Where: func(op simruntime.Op) bool { return op.ID == "" }, Edit: simruntime.PadTo(9 * MiB)})
	f.start()
	f.ready()
	f.eventually() // (a)
	large.Remove()
	f.streamUp()
	f.settled()

	y := f.container("Y", a, "U1", running)
	f.event(evStarted, y, a, func(ev *simruntime.Event) { simruntime.PadTo(6 * MiB)(ev) }) // (d)
	f.soon(y, "Started")
	if s := f.g().Status().Stream; s.State != "up" || s.Reconnects > 0 {
		t.Errorf("the stream after a large event: %+v", s)
	}
	f.quiet()

	refused := f.rule(simruntime.Rule{Method: "ListContainers", Where: func(op simruntime.Op) bool { return op.ID == "" },
		Code: codes.ResourceExhausted, Message: "trying to send message larger than max (17825792 vs. 16777216)"}) // (b)
	began, before := time.Now(), f.lists()
	f.until("lists that fail", func() bool { return f.g().Status().Relist.Failures > 1 })
	f.must(f.rt.ExitContainer(x, 1, ""))
	f.soon(x, "Died/1")
	f.until("unreadiness", func() bool { return !f.g().Health().Ready })
	if reason := health(f.g().Health()); !strings.Contains(reason, "larger than max") && !strings.Contains(reason, "too large") {
		t.Errorf("the reason: %s", reason)
	}
	if n, most := f.lists()-before, int(time.Since(began)/periodP)+2; n > most {
		t.Errorf("%d lists in %v", n, time.Since(began))
	}
	if n := f.metric("relists_total", "error"); n < 2 {
		t.Errorf("%v failed lists are counted", n)
	}
	f.never(y, "Died", "Removed")
	f.drop(x)
	refused.Remove() // (c)
	f.quiet()
	f.ready()
	f.wants(x, "Created", "Started", "Died/1", "Removed")
	f.wants(y, "Created", "Started")
	f.finish()
}

// TestC46Variation_SandboxListReallyTooLarge: more sandboxes than the runtime is
// able to send in one message, so that it refuses by itself; the same in a stream
// of messages works. A runtime that learns to do so is found out by its new
// connection.
func TestC46Variation_SandboxListReallyTooLarge(t *testing.T) {
	t.Parallel()
	f := newField(t, func(s *setup) {
		// Limits a thirtieth of containerd's.
		s.sim.ServerOptions, s.sim.StreamBatch = []grpc.ServerOption{grpc.MaxSendMsgSize(512 << 10)}, 20
	})
	heavy := strings.Repeat("x", 10<<10)
	var all []string
	for i := range 90 {
		uid := fmt.Sprintf("N%d", i)
		all = append(all, f.sandbox("s"+uid, uid, "10.0.1."+fmt.Sprint(i), func(s *runtimeapi.PodSandboxStatus) {
			s.Annotations = map[string]string{simruntime.AnnotationPadding: heavy}
		}))
	}
	unary := f.rule(simruntime.Rule{Method: "StreamPodSandboxes", Code: codes.Unimplemented})
	f.start()
	f.until("the reason", func() bool {
		reason := health(f.g().Health())
		return strings.Contains(reason, "larger than max") || strings.Contains(reason, "too large")
	})
	if f.g().Health().Ready {
		t.Error("ready without a list")
	}
	f.rt.Down()
	unary.Remove()
	f.rt.Up()
	f.ready()
	f.eventually()
	f.wantsAll(all, "Created", "Ready")
	f.settled()
	f.finish()
}
