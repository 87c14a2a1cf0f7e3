package criserver

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

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
	if got := ip(); got != "" {
		t.Errorf("%q: it is gone", got)
	}
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
		if got := doubtListed(tc.e); (got == "") != (tc.listed == "") || !strings.Contains(string(got), tc.listed) {
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
