package field_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/timestamps"
)

// noStream makes the runtime poll only.
func (f *field) noStream() *simruntime.RuleHandle {
	f.t.Helper()
	return f.rule(simruntime.Rule{Method: "GetContainerEvents", Code: codes.Unimplemented})
}

// TestC01_WholePodVanishesBetweenTwoRelists: poll only; a container and with it
// its whole pod are gone with the next list. Which is told first is debatable:
// here containers are, before their sandbox.
func TestC01_WholePodVanishesBetweenTwoRelists(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.noStream()
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	b := f.sandbox("B", "U2", "10.0.0.6")
	y := f.container("Y", b, "U2", running)
	z := f.container("Z", b, "U2", running)
	f.start()
	f.ready()
	f.soon(x, "Started")
	f.soon(y, "Started")
	f.settled()
	f.drop(x, y)
	f.must(f.rt.DropSandbox(a))
	f.quiet()
	for _, id := range []string{x, y} {
		f.wants(id, "Created", "Started", "Died/unknown", "Removed")
	}
	f.wants(a, "Created", "Ready", "NotReady", "Removed")
	f.wants(b, "Created", "Ready")
	f.wants(z, "Created", "Started")
	removed := func(id string) uint64 {
		for _, ev := range f.all() {
			if ev.EntityID() == id && rank(ev) == 4 {
				return ev.Position.Seq
			}
		}
		return 0
	}
	if removed(x) > removed(a) {
		t.Error("the sandbox was told to be removed before its container")
	}
	f.finish()
}

// TestC01Variation_PodOfTwoSandboxesVanishesUnderASilentStream: the same with a
// stream that says nothing, in a stretched period, for a pod that had begun
// anew: an old sandbox with a container whose code is known, and a new one whose
// container never started. A known code is not lost, and what never ran doesn't
// die.
func TestC01Variation_PodOfTwoSandboxesVanishesUnderASilentStream(t *testing.T) {
	t.Parallel()
	f := newField(t)
	old := f.sandbox("A", "U1", "10.0.0.5", func(s *runtimeapi.PodSandboxStatus) { s.State = sbNotReady })
	fresh := f.sandbox("B", "U1", "10.0.0.6", func(s *runtimeapi.PodSandboxStatus) { s.Metadata.Attempt = 1 })
	x := f.container("X", old, "U1", exited, code(3))
	y := f.container("Y", fresh, "U1", created)
	f.start()
	f.trustedJust()
	f.settled()
	f.drop(x, y)
	f.must(f.rt.DropSandbox(old))
	f.must(f.rt.DropSandbox(fresh))
	f.quiet()
	f.wants(x, "Created", "Started", "Died/3", "Removed")
	f.wants(y, "Created", "Removed")
	f.wants(fresh, "Created", "Ready", "NotReady", "Removed")
	if p := f.podOf("U1"); p.Key != "" {
		t.Errorf("the pod is still shown: %+v", p)
	}
	f.finish()
}

// TestC03_LifeBetweenTwoRelists: only the stream saw the container.
func TestC03_LifeBetweenTwoRelists(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	f.start()
	f.trustedJust()
	f.settled()
	before := f.lists()
	x := containerStatus("X", "U1", created)
	f.event(evCreated, x.Id, a, with(clone(x)))
	x.State, x.StartedAt = running, time.Now().UnixNano()
	f.event(evStarted, x.Id, a, with(clone(x)))
	exit(x, 3)
	f.event(evStopped, x.Id, a, with(clone(x)))
	f.event(evDeleted, x.Id, a)
	f.soon(x.Id, "Removed")
	if n := f.lists() - before; n > 0 {
		t.Errorf("it took %d full lists", n)
	}
	f.wants(x.Id, "Created", "Started", "Died/3", "Removed")
	f.trustedJust()
	f.wants(x.Id, "Created", "Started", "Died/3", "Removed")
	f.finish()
}

// TestC03_LifeBetweenTwoRelistsWithoutAStream leaves no trace (docs/design.md,
// Limits).
func TestC03_LifeBetweenTwoRelistsWithoutAStream(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.noStream()
	a := f.sandbox("A", "U1", "10.0.0.5")
	f.start()
	f.ready()
	f.relists(1)
	hold := f.both("Containers", simruntime.Rule{Hang: true}) // no list falls into its life
	x := f.container("X", a, "U1", running)
	f.exits(x, 3)
	f.drop(x)
	hold()
	f.relists(2)
	f.wants(x)
	f.finish()
}

// TestC03Variation_PodBetweenTwoRelists: a whole pod's life, with the events of
// containerd: exit code 0, which is a value, and a DELETED whose sandbox is
// created at Go's zero time.
func TestC03Variation_PodBetweenTwoRelists(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.pod("other")
	f.start()
	f.trustedJust()
	f.settled()
	before := f.lists()
	sandbox, x := f.pod("job")
	f.must(f.rt.ExitContainer(x, 0, ""))
	f.must(f.rt.RemovePodSandbox(sandbox))
	f.soon(sandbox, "Removed")
	if n := f.lists() - before; n > 0 {
		t.Errorf("it took %d full lists", n)
	}
	f.wants(x, "Created", "Started", "Died/0", "Removed")
	f.wants(sandbox, "Created", "Ready", "NotReady", "Removed")
	f.quiet()
	f.finish()
}

// TestC05_ListedContainerIsGoneWhenAsked: NotFound for one container is no
// failure of its pod.
func TestC05_ListedContainerIsGoneWhenAsked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		rule simruntime.Rule
	}{
		{"NotFound", simruntime.Rule{Code: codes.NotFound}},
		{"not found in the text only, as old CRI-O", simruntime.Rule{Code: codes.Unknown, Message: "container with ID starting with O not found"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			a := f.sandbox("A", "U1", "10.0.0.5")
			o := f.container("O", a, "U1", exited)
			x := f.container("X", a, "U1", running, attempt(1))
			tt.rule.Method, tt.rule.ID = "ContainerStatus", o
			gone := f.rule(tt.rule)
			f.logsOf("trouble (inspection_failing)", 1)
			f.start()
			f.ready()
			f.soon(x, "Started")
			f.soon(o, "Created")
			if p := f.podOf("U1"); len(p.Containers) != 2 || p.Restored || f.errorOf(x) != "" {
				t.Errorf("the pod: %+v", p)
			}
			f.settled()
			f.drop(o)
			f.quiet()
			f.queueEmpty()
			gone.Remove()
			f.soon(o, "Removed")
			f.wants(x, "Created", "Started")
			f.never(o, "regressed")
			f.neverUnready()
			f.finish()
		})
	}
}

// TestC05Variation_ListedSandboxIsGoneWhenAsked: the same with an old sandbox
// of a pod that runs on in a new one, while the stream is up; and here the list
// goes on to have it for some relists. Absence in one call and presence in a
// later one is presence (rule O4).
func TestC05Variation_ListedSandboxIsGoneWhenAsked(t *testing.T) {
	t.Parallel()
	f := newField(t)
	fresh := f.sandbox("B", "U1", "10.0.0.6", func(s *runtimeapi.PodSandboxStatus) { s.Metadata.Attempt = 1 })
	x := f.container("X", fresh, "U1", running, attempt(1))
	old := f.sandbox("A", "U1", "", func(s *runtimeapi.PodSandboxStatus) { s.State = sbNotReady })
	gone := f.rule(simruntime.Rule{Method: "PodSandboxStatus", ID: old, Code: codes.NotFound})
	f.start()
	f.ready()
	f.soon(x, "Started")
	f.soon(fresh, "Ready")
	f.relists(5)
	f.never(old, "Removed")
	if p := f.podOf("U1"); p.IP != "10.0.0.6" || len(p.Sandboxes) != 2 {
		t.Errorf("the pod: %+v", p)
	}
	f.settled()
	f.must(f.rt.DropSandbox(old))
	f.quiet()
	f.queueEmpty()
	f.soon(old, "Removed")
	gone.Remove()
	f.never(fresh, "NotReady", "Removed")
	f.neverUnready()
	f.finish()
}

// errorOf says why a container's or sandbox's last inspection failed.
func (f *field) errorOf(id string) string {
	pods, _ := f.g().Pods()
	for _, p := range pods {
		for _, s := range p.Sandboxes {
			if s.ID == id {
				return s.Error
			}
		}
		for _, c := range p.Containers {
			if c.ID == id {
				return c.Error
			}
		}
	}
	return ""
}

// byStream checks that an entity's step was told from the stream.
func (f *field) byStream(id string, step int) {
	f.t.Helper()
	for _, ev := range f.all() {
		if ev.EntityID() == id && rank(ev) == step && ev.Source != timestamps.FromStream {
			f.t.Errorf("not from the stream: %s", describe(ev))
		}
	}
}
