package field_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
)

// TestC07_ContainerThatCannotBeInspected: it is told with what the lists say,
// retried ever more rarely, and delays neither its pod nor others.
func TestC07_ContainerThatCannotBeInspected(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	y := f.container("Y", a, "U1", running)
	b := f.sandbox("B", "U2", "10.0.0.6")
	z := f.container("Z", b, "U2", running)
	broken := f.rule(simruntime.Rule{Method: "ContainerStatus", ID: x, Code: codes.Internal})
	f.noStream()
	f.start()
	f.ready()
	f.soon(x, "Started")
	f.settled()
	before := f.lists()
	f.exits(y, 1)
	f.exits(z, 2)
	f.soon(y, "Died/1")
	f.soon(z, "Died/2")
	if n := f.lists() - before; n > 5 { // G7: a relist, what was in flight, and the reader's and the test's own turns
		t.Errorf("it took %d relists until the neighbours' ends were told", n)
	}
	f.until("the error to be shown", func() bool { return f.errorOf(x) != "" })
	if f.errorOf(y) != "" || f.errorOf(z) != "" {
		t.Error("a neighbour is said not to be inspectable")
	}
	if v, _ := f.shown(y); v.State != "exited" {
		t.Errorf("shown of Y: %+v", v)
	}
	f.exits(x, 7) // its status still errors
	f.soon(x, "Died/unknown")
	lists := f.lists()
	f.until("30 relists", func() bool { return f.lists() >= lists+30 })
	calls := f.statusCalls(x)
	if len(calls) > 15 { // 30 relists and more; with back-off about six in the first 6 s
		t.Errorf("%d inspections in %d relists", len(calls), f.lists())
	}
	if n := f.metric("inspections_total", "status", "error"); n < 2 {
		t.Errorf("%v failed inspections are counted", n)
	}
	f.drop(x)
	f.quiet()
	f.queueEmpty()
	f.wants(x, "Created", "Started", "Died/unknown", "Removed")
	broken.Remove()
	f.neverUnready()
	f.finish()
}

// TestC07Variation_SandboxThatCannotBeInspected: PodSandboxStatus of one pod
// never returns, while the stream is up; its containers and other pods go on,
// and so do their codes.
func TestC07Variation_SandboxThatCannotBeInspected(t *testing.T) {
	t.Parallel()
	f := newField(t, func(s *setup) { s.agent.RPCTimeout = 200 * time.Millisecond })
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	hung := f.rule(simruntime.Rule{Method: "PodSandboxStatus", ID: a, Hang: true, IgnoreCancel: true})
	f.start()
	f.ready()
	f.soon(x, "Started")
	f.soon(a, "Ready") // with the failure: one inspection is waited for, never more
	before := f.lists()
	f.exits(x, 4)
	other, y := f.pod("other")
	f.soon(y, "Started")
	f.soon(x, "Died/4")
	if n := f.lists() - before; n > 16 { // a stretched period counts as one
		t.Errorf("it took %d relists", n)
	}
	// Each call that has timed out hangs on in the runtime. Without back-off
	// there would be a new one every second.
	if n := len(f.statusCalls(a)); n > 8 {
		t.Errorf("%d calls for one sandbox that never answers", n)
	}
	f.never(a, "NotReady", "Removed")
	hung.Remove()
	f.must(f.rt.RemovePodSandbox(other))
	f.soon(other, "Removed")
	f.neverUnready()
	f.finish()
}

// TestC07Variation_NeighboursOfCallsThatHang: more calls hang than are made at
// once. What happens in the same pods and in others is told before any of them
// has come to its end.
func TestC07Variation_NeighboursOfCallsThatHang(t *testing.T) {
	t.Parallel()
	f := newField(t, func(s *setup) { s.agent.RPCTimeout = patience })
	f.noStream()
	var hang, well []string
	for i := range 12 { // 8 at once is the default
		uid := fmt.Sprintf("N%d", i)
		s := f.sandbox("s"+uid, uid, "10.0.1."+fmt.Sprint(i))
		hang = append(hang, f.container("x"+uid, s, uid, running))
		well = append(well, f.container("y"+uid, s, uid, running))
	}
	hung := f.rule(simruntime.Rule{Method: "ContainerStatus", Where: func(op simruntime.Op) bool { return slices.Contains(hang, op.ID) }, Hang: true})
	f.start()
	f.ready()
	f.until("the calls that hang", func() bool {
		return !slices.ContainsFunc(hang, func(id string) bool { return len(f.statusCalls(id)) == 0 })
	})
	for _, id := range well {
		f.exits(id, 3)
	}
	z := f.container("z", f.sandbox("Z", "U2", "10.0.0.6"), "U2", exited, code(4))
	f.soon(z, "Died/4")
	for _, id := range well {
		f.soon(id, "Died/3")
	}
	for _, id := range hang {
		if calls := f.statusCalls(id); len(calls) != 1 || !calls[0].End.IsZero() {
			t.Errorf("G7: the neighbours waited for %s: %+v", short(id), calls)
		}
	}
	hung.Remove()
	f.neverUnready()
	f.finish()
}

// TestC09_NodeFullOfDeadContainers: the first relist inspects hundreds of dead
// containers, in parallel and with a bound; a restart tells none of them again.
func TestC09_NodeFullOfDeadContainers(t *testing.T) {
	t.Parallel()
	const each = 3
	pods, slow := size(150, 500), size(20*time.Millisecond, 100*time.Millisecond)
	f := newField(t)
	var dead []string
	for i := range pods {
		uid := fmt.Sprintf("D%d", i)
		s := f.sandbox("s"+uid, uid, "", func(s *runtimeapi.PodSandboxStatus) { s.State = sbNotReady })
		for j := range each {
			dead = append(dead, f.container(fmt.Sprintf("c%s-%d", uid, j), s, uid, exited, code(1)))
		}
	}
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	f.rule(simruntime.Rule{Method: "ContainerStatus", Delay: slow})
	f.rule(simruntime.Rule{Method: "PodSandboxStatus", Delay: slow})
	began := time.Now()
	f.start()
	f.ready()
	f.soon(x, "Started")
	f.eventually()
	serial := time.Duration(len(dead)+pods) * slow
	if stats := f.rt.CallStats("ContainerStatus"); stats.MaxInFlight < 2 || stats.MaxInFlight > 24 {
		t.Errorf("at most %d inspections at once", stats.MaxInFlight)
	}
	t.Logf("told after %v; one after another the inspections take %v", time.Since(began), serial)
	f.wantsAll(dead, "Created", "Started", "Died/1")
	f.neverUnready()
	f.stop()

	before := f.rt.CallStats("ContainerStatus").Started
	f.start()
	f.ready()
	f.relists(2)
	f.wantsAll(dead, "Created", "Started", "Died/1")
	if n := f.rt.CallStats("ContainerStatus").Started - before; n > 10 {
		t.Errorf("%d inspections after a restart that changed nothing", n)
	}
	f.finish()
}

// TestC09Variation_NodeFullOfDeadSandboxes: sandboxes instead, whose statuses
// are slow, and a pod that starts in the midst of it: it is told before the dead
// are through, by the stream or by the list that happens to be quicker.
func TestC09Variation_NodeFullOfDeadSandboxes(t *testing.T) {
	t.Parallel()
	const pods = 200
	f := newField(t, func(s *setup) { s.agent.RelistThreshold = 20 * time.Second })
	var dead []string
	for i := range pods {
		uid := fmt.Sprintf("D%d", i)
		dead = append(dead, f.sandbox("s"+uid, uid, "", func(s *runtimeapi.PodSandboxStatus) { s.State = sbNotReady }))
	}
	f.rule(simruntime.Rule{Method: "PodSandboxStatus", Where: func(op simruntime.Op) bool { return slices.Contains(dead, op.ID) },
		Delay: 100 * time.Millisecond})
	f.start()
	f.streamUp()
	f.until("the first inspections", func() bool { return f.rt.CallStats("PodSandboxStatus").Started > 8 })
	_, x := f.pod("fresh")
	f.soon(x, "Started")
	if n := f.rt.CallStats("PodSandboxStatus").Started; n >= pods {
		t.Errorf("it waited for all %d dead sandboxes", n)
	}
	f.eventually()
	if most := f.rt.CallStats("PodSandboxStatus").MaxInFlight; most < 2 || most > 24 {
		t.Errorf("at most %d inspections at once", most)
	}
	f.wantsAll(dead, "Created", "NotReady")
	f.neverUnready()
	f.finish()
}

// TestC10_NotReadyBeforeTheFirstRelist: the reason names the endpoint and no
// age, and when the runtime comes one line says so.
func TestC10_NotReadyBeforeTheFirstRelist(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	f.rt.Down()
	f.start()
	f.until("a reason with a cause", func() bool { return strings.Contains(health(f.g().Health()), "no such file") })
	f.during(700*time.Millisecond, "not ready, and a reason that names the endpoint and no age", func() bool {
		h := f.g().Health()
		return !h.Ready && h.Live && strings.Contains(health(h), f.path) && strings.Contains(health(h), "no relist") &&
			!strings.Contains(health(h), "ago")
	})
	if age := f.metric("relist_age_seconds"); age > 60 {
		t.Errorf("a relist is said to be %v s old", age)
	}
	f.rt.Up()
	f.ready()
	f.soon(x, "Started")
	f.wants(x, "Created", "Started")
	f.recoveredOnce("never_relisted")
	f.finish()
}

// TestC10Variation_RuntimeThatAcceptsAndDoesNotAnswer: the socket is there, but
// nobody answers, at first not even Version, then lists alone fail. The reason
// says so.
func TestC10Variation_RuntimeThatAcceptsAndDoesNotAnswer(t *testing.T) {
	t.Parallel()
	f := newField(t, func(s *setup) { s.agent.RPCTimeout = 200 * time.Millisecond })
	_, x := f.pod("a")
	hung := f.rule(simruntime.Rule{Hang: true, IgnoreCancel: true})
	failing := f.both("PodSandbox", simruntime.Rule{Code: codes.Unavailable, Message: "plugin is loading"})
	f.start()
	reason := func(text string) func() bool {
		return func() bool { h := f.g().Health(); return !h.Ready && strings.Contains(health(h), text) }
	}
	f.until("a reason that says that nobody answers", reason("no answer"))
	hung.Remove()
	f.until("a reason that is the lists' own", reason("plugin is loading"))
	f.during(300*time.Millisecond, "not ready", func() bool { return !f.g().Health().Ready })
	failing()
	f.ready()
	f.soon(x, "Started")
	f.wants(x, "Created", "Started")
	f.recoveredOnce("never_relisted")
	f.finish()
}

// recoveredOnce checks that a condition was logged once when it began, and once
// when it ended.
func (f *field) recoveredOnce(condition string) {
	f.t.Helper()
	f.until("the line that says that it is over", func() bool { return f.log.messages()["recovered ("+condition+")"] > 0 })
	m := f.log.messages()
	if began, ended := m["trouble ("+condition+")"], m["recovered ("+condition+")"]; began != 1 || ended != 1 {
		f.t.Errorf("G8: %s was logged %d times to begin and %d times to end", condition, began, ended)
	}
}
