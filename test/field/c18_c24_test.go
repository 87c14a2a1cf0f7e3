package field_test

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
)

// TestC18_EventsGoToAnotherSubscriber: every other event is delivered. What is
// delivered shows the neighbours too; what nothing shows is found by L, counted
// as missed, and the stream is no longer trusted.
func TestC18_EventsGoToAnotherSubscriber(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	f.start()
	f.trustedJust()
	f.settled()
	before := f.lists()
	f.exits(x, 1) // its STOPPED goes elsewhere
	y := f.container("Y", a, "U1", created)
	f.event(evCreated, y, a)
	f.soon(x, "Died/1")
	if n := f.lists() - before; n > 0 {
		t.Errorf("it took %d lists", n)
	}
	f.runs(y) // its STARTED goes elsewhere
	f.resume()
	before = f.lists()
	f.soon(y, "Started")
	if n := f.lists() - before; n > 2 {
		t.Errorf("it took %d lists", n)
	}
	// An event counts as missed only 5 s after a list has shown its change.
	f.until("the miss to be counted", func() bool { return f.metric("stream_misses_total") > 0 })
	f.until("a short period", func() bool { return f.g().Status().Relist.Period <= periodP.Seconds()*2 })
	f.quiet()
	f.wants(x, "Created", "Started", "Died/1")
	f.wants(y, "Created", "Started")
	f.trusted() // it behaves again
	f.finish()
}

// TestC18Variation_RemovalsGoToAnotherSubscriber: the events of teardowns are
// shared out, one to us and one to the other; starts come whole.
func TestC18Variation_RemovalsGoToAnotherSubscriber(t *testing.T) {
	t.Parallel()
	f := newField(t)
	var sandboxes, containers []string
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		s, c := f.pod(name)
		sandboxes, containers = append(sandboxes, s), append(containers, c)
	}
	f.start()
	f.trustedJust()
	f.settled()
	f.rule(simruntime.Rule{Method: simruntime.MethodEvent, Skip: 1, Every: 2, Drop: true})
	for i, s := range sandboxes[:4] {
		f.must(f.rt.ExitContainer(containers[i], int32(i+1), ""))
		f.must(f.rt.RemovePodSandbox(s))
	}
	f.quiet()
	for i := range sandboxes[:4] {
		f.caughtUp()
		// A code is lost only where the death itself went elsewhere and nothing
		// later showed it.
		got := f.told(containers[i])
		if len(got) != 4 || got[0] != "Created" || got[1] != "Started" || got[3] != "Removed" {
			t.Errorf("told of a container: %v", got)
		}
		f.wants(sandboxes[i], "Created", "Ready", "NotReady", "Removed")
	}
	f.wants(containers[5], "Created", "Started")
	f.finish()
}

// TestC20_StopAndDeleteArriveTwice, and a late, emptied copy comes last.
func TestC20_StopAndDeleteArriveTwice(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	f.start()
	f.trustedJust()
	f.soon(x, "Started")
	f.settled()
	f.exits(x, 9)
	f.event(evStopped, x, a)
	f.soon(x, "Died/9")
	f.event(evStopped, x, a)
	f.knowCode(x, 0) // told by the emptied copies, and to be ignored: wants below says that it was
	emptied := containerStatus("X", "U1", exited)
	emptied.FinishedAt, emptied.StartedAt = 0, 0
	f.event(evStopped, x, a, with(emptied))
	f.drop(x)
	f.event(evDeleted, x, a)
	f.event(evDeleted, x, a, func(ev *simruntime.Event) { ev.PodSandboxStatus = nil })
	f.soon(x, "Removed")
	f.event(evStopped, x, a, with(emptied))
	received := f.g().Status().Stream.Events
	f.event(evStopped, long("marker"), a, bare)
	f.until("the last event", func() bool { return f.g().Status().Stream.Events > received })
	f.quiet()
	f.queueEmpty()
	if v, ok := f.shown(x); ok {
		t.Errorf("it is back: %+v", v)
	}
	f.relists(2)
	f.wants(x, "Created", "Started", "Died/9", "Removed")
	f.finish()
}

// TestC20Variation_SandboxEndsAndGoesTwice: the sandbox's own events come twice
// and in the wrong order, with copies of its beginning last of all.
func TestC20Variation_SandboxEndsAndGoesTwice(t *testing.T) {
	t.Parallel()
	f := newField(t)
	_, other := f.pod("other")
	f.start()
	f.trustedJust()
	f.settled()
	late := f.rule(simruntime.Rule{Method: simruntime.MethodEvent, Duplicate: 1, Hang: true}) // all that follows, told again later
	sandbox, x := f.pod("job")
	f.soon(x, "Started")
	f.must(f.rt.ExitContainer(x, 2, ""))
	f.must(f.rt.RemovePodSandbox(sandbox))
	f.soon(sandbox, "Removed")
	events := f.g().Status().Stream.Events
	late.Remove()
	f.until("the copies", func() bool { return f.g().Status().Stream.Events >= events+8 })
	f.relists(2)
	f.queueEmpty()
	f.wants(x, "Created", "Started", "Died/2", "Removed")
	f.wants(sandbox, "Created", "Ready", "NotReady", "Removed")
	f.wants(other, "Created", "Started")
	f.finish()
}

// TestC22_ContainerWithoutASandbox: the sandbox goes while a container is made
// in it, and the events of both come empty.
func TestC22_ContainerWithoutASandbox(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	f.start()
	f.trustedJust()
	f.settled()
	c1 := f.container("c1", a, "U1", running)
	f.must(f.rt.DropSandbox(a))
	f.event(evDeleted, a, a, bare)
	f.soon(a, "Removed")
	f.soon(c1, "Started")
	f.until("a pod with a container and no sandbox", func() bool {
		p := f.podOf("U1")
		return len(p.Containers) == 1 && len(p.Sandboxes) == 0
	})
	before := f.lists()
	f.exits(c1, 137)
	f.event(evStopped, c1, a, bare)
	f.soon(c1, "Died/137")
	f.drop(c1)
	f.event(evDeleted, c1, a, bare)
	f.soon(c1, "Removed")
	if n := f.lists() - before; n > 1 {
		t.Errorf("its end took %d lists", n)
	}
	before = f.lists()
	received := f.g().Status().Stream.Events
	f.event(evStopped, long("q9"), a, bare)
	f.until("the event", func() bool { return f.g().Status().Stream.Events > received })
	f.queueEmpty()
	if n := f.lists() - before; n > 1 {
		t.Errorf("an event of nobody caused %d lists", n)
	}
	f.quiet()
	f.wants(long("q9"))
	f.wants(a, "Created", "Ready", "NotReady", "Removed")
	f.wants(c1, "Created", "Started", "Died/137", "Removed")
	if p := f.podOf("U1"); p.Key != "" {
		t.Errorf("the pod is still shown: %+v", p)
	}
	f.finish()
}

// TestC22Variation_OrphanWithoutLabels: a container that says of no pod whose it
// is outlives its sandbox, and its events are empty; the agent's own record is
// all that says whose it was. Meanwhile the pod has a new sandbox.
func TestC22Variation_OrphanWithoutLabels(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running, func(c *runtimeapi.ContainerStatus) { c.Labels = nil })
	f.start()
	f.trustedJust()
	f.soon(x, "Started")
	f.settled()
	before := f.lists()
	f.must(f.rt.DropSandbox(a))
	f.event(evDeleted, a, a, bare)
	f.soon(a, "Removed")
	b := f.sandbox("B", "U1", "10.0.0.6", func(s *runtimeapi.PodSandboxStatus) { s.Metadata.Attempt = 1 })
	f.event(evCreated, b, b)
	f.event(evStarted, b, b)
	f.soon(b, "Ready")
	f.exits(x, 1)
	f.event(evStopped, x, a, bare)
	f.soon(x, "Died/1")
	f.drop(x)
	f.event(evDeleted, x, a, bare)
	f.soon(x, "Removed")
	if n := f.lists() - before; n > 2 {
		t.Errorf("it took %d lists", n)
	}
	f.wants(x, "Created", "Started", "Died/1", "Removed")
	f.quiet()
	f.wants(b, "Created", "Ready")
	f.finish()
}

// TestC24_EventWithoutTheContainers: a payload that lacks the containers says
// nothing about them.
func TestC24_EventWithoutTheContainers(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	f.start()
	f.trustedJust()
	f.soon(x, "Started")
	f.settled()
	before := f.lists()
	y := f.container("Y", a, "U1", running)
	f.event(evStarted, y, a, with())
	f.soon(y, "Started")
	if n := f.lists() - before; n > 0 {
		t.Errorf("it took %d lists", n)
	}
	f.quiet()
	f.wants(x, "Created", "Started")
	f.wants(y, "Created", "Started")
	f.finish() // and no sample has lost X (G6)
}

// TestC24Variation_PayloadWithoutTheNeighbours: the payloads hold the event's own
// container alone, or all but it; and the events of the sandbox come without
// any.
func TestC24Variation_PayloadWithoutTheNeighbours(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	y := f.container("Y", a, "U1", running)
	f.start()
	f.trustedJust()
	f.soon(x, "Started")
	f.settled()
	only := func(id string, keep bool) func(*simruntime.Event) {
		return func(ev *simruntime.Event) {
			all := ev.ContainersStatuses
			ev.ContainersStatuses = nil
			for _, c := range all {
				if (c.Id == id) == keep {
					ev.ContainersStatuses = append(ev.ContainersStatuses, c)
				}
			}
		}
	}
	before := f.lists()
	z := f.container("Z", a, "U1", created)
	f.event(evCreated, z, a, only(z, true))
	f.runs(z)
	f.event(evStarted, z, a, only(z, false)) // its neighbours only
	f.soon(z, "Started")
	f.event(evStarted, a, a, with())
	f.exits(y, 3)
	f.event(evStopped, y, a, only(y, false))
	f.soon(y, "Died/3")
	if n := f.lists() - before; n > 1 {
		t.Errorf("it took %d lists", n)
	}
	f.quiet()
	f.wants(x, "Created", "Started")
	f.wants(y, "Created", "Started", "Died/3")
	f.wants(z, "Created", "Started")
	f.finish()
}
