package cri

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/store"
)

// recordOf is a record after nothing but this item.
func recordOf(i *arbiter.Item) *store.Record {
	r := &store.Record{
		Kind: i.Kind, ID: i.ID, Reported: i.State, CreatedAt: i.CreatedAt, StartedAt: i.StartedAt, Exit: i.Exit, IPs: i.IPs, Rest: i.Rest,
	}
	if r.State = store.StateUp; i.State == int32(runtimeapi.PodSandboxState_SANDBOX_NOTREADY) {
		r.State = store.StateDown
	}
	return r
}

func TestRestoredAsSaid(t *testing.T) {
	for what, change := range map[string]func(*runtimeapi.PodSandboxStatus){
		"as it is":           func(*runtimeapi.PodSandboxStatus) {},
		"ready":              func(s *runtimeapi.PodSandboxStatus) { s.State = runtimeapi.PodSandboxState_SANDBOX_READY },
		"no address":         func(s *runtimeapi.PodSandboxStatus) { s.Network = &runtimeapi.PodSandboxNetworkStatus{} },
		"nothing of network": func(s *runtimeapi.PodSandboxStatus) { s.Network = nil },
	} {
		said := sampleSandbox()
		change(said)
		got, whole := RestoreSandbox(recordOf(SandboxStatus(said)))
		if d := cmp.Diff(said, got, protocmp.Transform()); d != "" || !whole {
			t.Errorf("%s: whole %v, %s", what, whole, d)
		}
	}
	for what, change := range map[string]func(*runtimeapi.ContainerStatus){
		"exited": func(*runtimeapi.ContainerStatus) {},
		"running": func(s *runtimeapi.ContainerStatus) {
			s.State, s.FinishedAt, s.ExitCode, s.Reason, s.Message = runtimeapi.ContainerState_CONTAINER_RUNNING, 0, 0, "", ""
		},
		"waiting": func(s *runtimeapi.ContainerStatus) {
			s.State, s.StartedAt, s.FinishedAt, s.ExitCode = runtimeapi.ContainerState_CONTAINER_CREATED, 0, 0, 0
		},
	} {
		said := sampleContainer()
		change(said)
		got, whole := RestoreContainer(recordOf(ContainerStatus(said)))
		if d := cmp.Diff(said, got, protocmp.Transform()); d != "" || !whole {
			t.Errorf("%s: whole %v, %s", what, whole, d)
		}
	}
}

// The address stays in a record when the runtime takes it away; what the
// runtime says of the network is told as it is.
func TestRestoredNetworkIsTheLast(t *testing.T) {
	said := sampleSandbox()
	r := recordOf(SandboxStatus(said))
	said.Network = &runtimeapi.PodSandboxNetworkStatus{}
	r.Rest = SandboxStatus(said).Rest
	if got, whole := RestoreSandbox(r); !whole || !proto.Equal(got, said) {
		t.Errorf("whole %v: %v", whole, got)
	}
}

// What had to be left out is known to be missing.
func TestRestoredInPart(t *testing.T) {
	big := map[string]string{"big": strings.Repeat("x", maxRest)}
	s := sampleSandbox()
	s.Annotations = big
	if got, whole := RestoreSandbox(recordOf(SandboxStatus(s))); whole || got == nil || len(got.ProtoReflect().GetUnknown()) > 0 {
		t.Errorf("sandbox: whole %v, %d unknown bytes", whole, len(got.ProtoReflect().GetUnknown()))
	}
	r := recordOf(SandboxStatus(sampleSandbox()))
	said := sampleSandbox()
	said.Network = nil
	r.Rest = SandboxStatus(said).Rest // as earlier versions kept it
	if got, whole := RestoreSandbox(r); whole || got.GetNetwork().GetIp() != sampleSandbox().GetNetwork().GetIp() {
		t.Errorf("earlier version: whole %v, %v", whole, got)
	}
	for what, change := range map[string]func(*runtimeapi.ContainerStatus){
		"annotations": func(c *runtimeapi.ContainerStatus) { c.Annotations = big },
		"message":     func(c *runtimeapi.ContainerStatus) { c.Message = strings.Repeat("é", maxExitText) },
		"reason":      func(c *runtimeapi.ContainerStatus) { c.Reason = strings.Repeat("r", maxReason+1) },
	} {
		c := sampleContainer()
		change(c)
		if got, whole := RestoreContainer(recordOf(ContainerStatus(c))); whole || got == nil {
			t.Errorf("%s: whole %v, %v", what, whole, got)
		}
	}
	c := sampleContainer()
	c.LogPath = strings.Repeat("x", maxRest)
	if got, whole := RestoreContainer(recordOf(ContainerStatus(c))); whole || got != nil {
		t.Errorf("too large: whole %v, %d bytes", whole, proto.Size(got))
	}
}
