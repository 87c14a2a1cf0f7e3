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

// TestC33_PodIPSurvivesTermination, and is never another sandbox's. What to show
// while the new sandbox has no address is debatable: plegd shows none for the
// pod, and the old one with its own sandbox. The kept address survives a restart
// of the agent.
func TestC33_PodIPSurvivesTermination(t *testing.T) {
	t.Parallel()
	f := newField(t)
	v6 := &runtimeapi.PodIP{Ip: "fd00::5"}
	a := f.sandbox("A", "U1", "10.0.0.5", func(s *runtimeapi.PodSandboxStatus) { s.Network.AdditionalIps = []*runtimeapi.PodIP{v6} })
	x := f.container("X", a, "U1", running)
	host := f.sandbox("H", "U2", "", func(s *runtimeapi.PodSandboxStatus) {
		s.Linux.Namespaces.Options.Network = runtimeapi.NamespaceMode_NODE
	})
	f.start()
	f.soon(x, "Started")
	f.soon(host, "Ready")
	f.trusted()
	f.settled()
	keeps := func(want ...string) func() bool {
		return func() bool { return slices.Equal(f.podOf("U1").IPs, want) }
	}
	f.until("the addresses", keeps("10.0.0.5", "fd00::5"))
	noAddress := func(s *runtimeapi.PodSandboxStatus) { s.Network = &runtimeapi.PodSandboxNetworkStatus{} }

	f.must(f.rt.EditSandbox(a, noAddress)) // READY still
	f.exits(x, 0)
	f.event(evStopped, x, a)
	f.soon(x, "Died/0")
	f.during(300*time.Millisecond, "the addresses of a sandbox that is torn down", keeps("10.0.0.5", "fd00::5"))
	f.must(f.rt.SetSandboxState(a, sbNotReady))
	f.event(evStopped, a, a)
	f.soon(a, "NotReady")
	f.during(300*time.Millisecond, "the addresses of a sandbox that has ended", keeps("10.0.0.5", "fd00::5"))
	f.stop()
	f.start()
	f.ready()
	f.relists(2)
	f.during(100*time.Millisecond, "the addresses after a restart", keeps("10.0.0.5", "fd00::5"))

	b := f.sandbox("B", "U1", "", func(s *runtimeapi.PodSandboxStatus) { s.Metadata.Attempt = 1 })
	f.event(evCreated, b, b)
	f.soon(b, "Created")
	f.until("the new sandbox", func() bool { p := f.podOf("U1"); return len(p.Sandboxes) == 2 && p.Sandboxes[0].ID == b })
	if p := f.podOf("U1"); p.IP != "" || len(p.IPs) > 0 || !slices.Equal(p.Sandboxes[1].IPs, []string{"10.0.0.5", "fd00::5"}) {
		t.Errorf("while the new sandbox has no address: %+v", p)
	}
	f.must(f.rt.EditSandbox(b, func(s *runtimeapi.PodSandboxStatus) { s.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.9"} }))
	f.until("the new address", keeps("10.0.0.9"))
	f.must(f.rt.EditSandbox(b, func(s *runtimeapi.PodSandboxStatus) { noAddress(s); s.State = sbNotReady }))
	f.quiet()
	f.soon(b, "NotReady")
	f.during(300*time.Millisecond, "the new address", keeps("10.0.0.9"))
	if f.everShown(b, func(v view) bool { return v.IPs != "" && v.IPs != "10.0.0.9" }) {
		t.Errorf("of the new sandbox was shown: %+v", f.views(b))
	}
	f.queueEmpty()
	if n := len(f.statusCalls(host)); n > 3 {
		t.Errorf("%d inspections of a pod on the host's network", n)
	}
	if p := f.podOf("U2"); p.IP != "" || f.errorOf(host) != "" {
		t.Errorf("pod on the host's network: %+v", p)
	}
	f.finish()
}

// TestC33Variation_AddressesOfAPollOnlyRuntime: no events; the address comes late, after
// the sandbox was told; the pod ends and begins anew between two relists, and the
// old sandbox is removed: then its address is gone with it.
func TestC33Variation_AddressesOfAPollOnlyRuntime(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.noStream()
	a := f.sandbox("A", "U1", "")
	x := f.container("X", a, "U1", running)
	f.start()
	f.soon(a, "Ready")
	f.settled()
	f.must(f.rt.EditSandbox(a, func(s *runtimeapi.PodSandboxStatus) { s.Network.Ip = "10.0.0.5" }))
	f.until("the late address", func() bool { return f.podOf("U1").IP == "10.0.0.5" })
	f.exits(x, 0)
	f.must(f.rt.EditSandbox(a, func(s *runtimeapi.PodSandboxStatus) { s.State, s.Network.Ip = sbNotReady, "" }))
	b := f.sandbox("B", "U1", "10.0.0.9", func(s *runtimeapi.PodSandboxStatus) { s.Metadata.Attempt = 1 })
	y := f.container("Y", b, "U1", running, attempt(1))
	f.quiet()
	f.soon(y, "Started")
	p := f.podOf("U1")
	if p.IP != "10.0.0.9" || len(p.Sandboxes) != 2 || !slices.Equal(p.Sandboxes[1].IPs, []string{"10.0.0.5"}) {
		t.Errorf("the pod: %+v", p)
	}
	f.drop(x)
	f.must(f.rt.DropSandbox(a))
	f.quiet()
	f.until("the new address alone", func() bool {
		p := f.podOf("U1")
		return slices.Equal(p.IPs, []string{"10.0.0.9"}) && len(p.Sandboxes) == 1
	})
	for _, v := range f.views(b) {
		if v.IPs == "10.0.0.5" {
			t.Errorf("the old address was shown as the new sandbox's: %+v", v)
		}
	}
	f.finish()
}

// TestC36_SandboxesThatNoKubeletMade are pods of their own, keyed by their
// sandbox ids, with events like all others (docs/design.md, rule O7).
func TestC36_SandboxesThatNoKubeletMade(t *testing.T) {
	t.Parallel()
	f := newField(t)
	bareSandbox := func(s *runtimeapi.PodSandboxStatus) { s.Metadata.Uid, s.Labels = "", nil }
	bareContainer := func(c *runtimeapi.ContainerStatus) { c.Labels = nil }
	n := f.sandbox("N", "U1", "10.0.0.5")
	x := f.container("X", n, "U1", running)
	r := f.container("r", n, "U1", running, func(c *runtimeapi.ContainerStatus) { delete(c.Labels, simruntime.LabelPodUID) })
	p1, p2 := f.sandbox("P1", "", "10.0.0.6", bareSandbox), f.sandbox("P2", "", "10.0.0.7", bareSandbox)
	p, q := f.container("p", p1, "", running, bareContainer), f.container("q", p2, "", running, bareContainer)
	f.start()
	f.ready()
	for _, id := range []string{x, r, p, q} {
		f.soon(id, "Started")
	}
	f.settled()
	f.queueEmpty()
	if pod := f.podOf("U1"); len(pod.Containers) != 2 || len(pod.Sandboxes) != 1 {
		t.Errorf("the kubelet's pod: %+v", pod)
	}
	if pod := f.podOf(""); pod.Key != "" {
		t.Errorf("a pod without a key: %+v", pod)
	}
	f.exits(p, 1)
	f.quiet()
	f.soon(p, "Died/1")
	f.wants(q, "Created", "Started")
	if pod := f.podOf(nameless(p2)); len(pod.Containers) != 1 || pod.Containers[0].ID != q || pod.IP != "10.0.0.7" {
		t.Errorf("the pod of q: %+v", pod)
	}
	f.queueEmpty()
	if lines := f.log.all(); len(lines) > 2 {
		t.Errorf("logged: %v", lines)
	}
	f.finish()
}

// TestC36Variation_NamelessPodsByTheStream: sandboxes without any metadata come
// by events whose payloads name no pod, one of them fails to be inspected once,
// and both are torn down through events.
func TestC36Variation_NamelessPodsByTheStream(t *testing.T) {
	t.Parallel()
	f := newField(t)
	_, other := f.pod("other")
	f.start()
	f.trustedJust()
	f.settled()
	bareSandbox := func(s *runtimeapi.PodSandboxStatus) { s.Metadata, s.Labels = nil, nil }
	bareContainer := func(c *runtimeapi.ContainerStatus) { c.Labels, c.Metadata = nil, nil }
	p1, p2 := f.sandbox("P1", "", "10.0.0.6", bareSandbox), f.sandbox("P2", "", "10.0.0.7", bareSandbox)
	f.rule(simruntime.Rule{Method: "PodSandboxStatus", ID: p1, Times: 1, Code: codes.Unknown})
	p, q := f.container("p", p1, "", running, bareContainer), f.container("q", p2, "", running, bareContainer)
	f.event(evStarted, p, p1, func(ev *simruntime.Event) { ev.PodSandboxStatus = nil })
	f.event(evStarted, q, p2)
	f.soon(p, "Started")
	f.soon(q, "Started")
	f.resume() // nothing but a list says that P1 is there
	f.soon(p1, "Ready")
	f.soon(p2, "Ready")
	f.until("two pods", func() bool {
		return len(f.podOf(nameless(p1)).Containers) == 1 && len(f.podOf(nameless(p2)).Containers) == 1
	})
	f.exits(p, 4)
	f.event(evStopped, p, p1)
	f.soon(p, "Died/4")
	f.drop(p)
	f.event(evDeleted, p, p1)
	f.must(f.rt.DropSandbox(p1))
	f.event(evDeleted, p1, p1)
	f.soon(p1, "Removed")
	f.wants(q, "Created", "Started")
	f.wants(other, "Created", "Started")
	f.quiet()
	f.queueEmpty()
	f.finish()
}

// TestC37_SandboxesWithoutContainers: an empty pod is a pod; a useless second
// sandbox and then many of them make no container event and no storm of
// inspections, and leave nothing behind.
func TestC37_SandboxesWithoutContainers(t *testing.T) {
	t.Parallel()
	many := size(100, 300)
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	f.start()
	f.soon(a, "Ready")
	f.settled()
	if p := f.podOf("U1"); p.Key != "U1" || len(p.Containers) != 0 || len(p.Sandboxes) != 1 {
		t.Errorf("the empty pod: %+v", p)
	}
	f.must(f.rt.SetSandboxState(a, sbNotReady))
	ended := func(s *runtimeapi.PodSandboxStatus) { s.State, s.Metadata.Attempt = sbNotReady, 1 }
	b := f.sandbox("B", "U1", "", ended)
	f.quiet()
	f.soon(b, "NotReady")
	f.wants(b, "Created", "NotReady")
	var all []string
	for i := range many {
		uid := fmt.Sprintf("N%d", i)
		all = append(all, f.sandbox("s"+uid, uid, "", ended))
		time.Sleep(size(10*time.Millisecond, 100*time.Millisecond))
	}
	f.quiet()
	f.queueEmpty()
	calls := f.rt.CallStats("PodSandboxStatus").Started
	if calls > 2*many {
		t.Errorf("%d inspections of %d sandboxes", calls, many+2)
	}
	f.relists(5)
	if n := f.rt.CallStats("PodSandboxStatus").Started - calls; n > 0 {
		t.Errorf("%d inspections of empty sandboxes that did not change", n)
	}
	for _, id := range all {
		f.must(f.rt.DropSandbox(id))
	}
	f.quiet()
	f.wantsAll(all, "Created", "NotReady", "Removed")
	for _, ev := range f.all() {
		if ev.Container.ID != "" {
			t.Errorf("a container event: %s", describe(ev))
		}
	}
	f.finish()
}

// TestC37Variation_EmptySandboxesComeAndGoByTheStream: READY ones, by the
// runtime's own events, in quick succession and half of them gone again before
// the next begins; some go without their last event.
func TestC37Variation_EmptySandboxesComeAndGoByTheStream(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.start()
	f.trustedJust()
	f.settled()
	var all []string
	for i := range 60 {
		id, err := f.rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: fmt.Sprint("p", i), UID: fmt.Sprint("N", i)})
		f.must(err)
		all = append(all, id)
		if i%2 == 0 {
			f.must(f.rt.RemovePodSandbox(id))
		}
	}
	f.soon(all[59], "Ready")
	for i := 1; i < 60; i += 2 {
		if i%3 == 0 {
			f.must(f.rt.DropSandbox(all[i])) // nobody is told
		} else {
			f.must(f.rt.RemovePodSandbox(all[i]))
		}
	}
	f.quiet()
	f.wantsAll(all, "Created", "Ready", "NotReady", "Removed")
	f.queueEmpty()
	if pods, _ := f.g().Pods(); len(pods) > 0 {
		t.Errorf("%d pods are left", len(pods))
	}
	f.finish()
}

// TestC40_UnknownComesAndGoes: UNKNOWN is a state as reported, told once in a
// life; it kills and starts nothing, and 255 comes out in the end.
func TestC40_UnknownComesAndGoes(t *testing.T) {
	t.Parallel()
	f := newField(t, func(s *setup) { s.agent.RelistPeriodMax = periodP })
	var all []string
	for i := range 101 {
		uid := fmt.Sprintf("N%d", i)
		all = append(all, f.container("c"+uid, f.sandbox("s"+uid, uid, "10.0.1."+fmt.Sprint(i)), uid, running))
	}
	x := all[0]
	f.start()
	f.ready()
	f.soon(x, "Started")
	f.eventually()
	f.settled()
	for n := range size(8, 60) {
		state, name := unknown, "unknown"
		if n%2 == 1 {
			state, name = running, "running"
		}
		for _, id := range all {
			f.must(f.rt.SetContainerState(id, state))
		}
		f.until("all to be shown as "+name, func() bool {
			pods, _ := f.g().Pods()
			shown := cached(pods)
			return !slices.ContainsFunc(all, func(id string) bool { return shown[id].Reported != name })
		})
	}
	f.wantsAll(all, "Created", "Started", "unknown")
	f.must(f.rt.SetContainerState(x, unknown))
	f.relists(2)
	f.must(f.rt.EditContainer(x, func(c *runtimeapi.ContainerStatus) { exit(c, 255); c.Reason = "Unknown" }))
	f.soon(x, "Died/255")
	f.quiet()
	f.queueEmpty()
	f.wants(x, "Created", "Started", "unknown", "Died/255")
	if v, _ := f.shown(x); v.State != "exited" || v.Exit != "255" {
		t.Errorf("shown: %+v", v)
	}
	f.neverUnready()
	f.finish()
}

// TestC40Variation_UnknownFromTheStream: the payloads of events say UNKNOWN, of a
// container that has only just been created and of one that has exited: neither
// is started, nor does what is known of an exit go, not even when lists and
// statuses say the same.
func TestC40Variation_UnknownFromTheStream(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", exited, code(3))
	y := f.container("Y", a, "U1", created)
	f.start()
	f.soon(x, "Died/3")
	f.soon(y, "Created")
	f.trusted() // an event is never certainly later than what is known: the lists show UNKNOWN
	f.settled()
	for range 3 {
		before := len(f.statusCalls(x))
		// An UNKNOWN status of containerd has neither code nor end.
		var ended *runtimeapi.ContainerStatus
		f.must(f.rt.EditContainer(x, func(c *runtimeapi.ContainerStatus) {
			ended = clone(c)
			c.State, c.ExitCode, c.FinishedAt, c.Reason = unknown, 0, 0, ""
		}))
		f.must(f.rt.EditContainer(y, func(c *runtimeapi.ContainerStatus) { c.State = unknown }))
		f.event(evStarted, a, a, func(ev *simruntime.Event) {
			for _, c := range ev.ContainersStatuses {
				c.State, c.ExitCode, c.FinishedAt, c.Reason = unknown, 0, 0, ""
			}
		})
		f.until("UNKNOWN to be shown", func() bool { v, _ := f.shown(y); return v.Reported == "unknown" })
		f.until("a status that says UNKNOWN", func() bool { return len(f.statusCalls(x)) > before })
		f.must(f.rt.EditContainer(y, func(c *runtimeapi.ContainerStatus) { c.State = created }))
		f.must(f.rt.EditContainer(x, func(c *runtimeapi.ContainerStatus) {
			c.State, c.ExitCode, c.FinishedAt, c.Reason = ended.State, ended.ExitCode, ended.FinishedAt, ended.Reason
		}))
		f.relists(1)
		f.until("CREATED to be shown again", func() bool { v, _ := f.shown(y); return v.Reported == "created" })
	}
	f.runs(y)
	f.event(evStarted, y, a)
	f.soon(y, "Started")
	f.eventually()
	f.never(x, "regressed")
	if got := f.told(y); strings.Join(got, " ") != "Created unknown Started" {
		t.Errorf("told of Y: %v", got)
	}
	f.finish()
}
