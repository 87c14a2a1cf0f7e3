package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/recording"
)

// anything is a recording that no runtime would give: all kinds of entries in any order,
// about a few ids.
func anything(t *testing.T, seed uint64) *said {
	rng := rand.New(rand.NewPCG(seed, 0))
	s := &said{t: t}
	if seed%2 == 0 { // else it has no sensible beginning either
		s = begun(t)
	}
	id := func() string { return fmt.Sprint([]string{"", "c", "s"}[rng.IntN(3)], rng.IntN(4)) }
	state := func() runtimeapi.ContainerState { return runtimeapi.ContainerState(rng.IntN(5)) }
	status := func() *runtimeapi.ContainerStatus { return statusOf(id(), state(), rng.Int32N(3)).GetStatus() }
	answers := []func() (method, about string, m proto.Message){
		func() (string, string, proto.Message) {
			return methodVersion, "", &runtimeapi.VersionResponse{RuntimeName: "containerd"}
		},
		func() (string, string, proto.Message) {
			return methodSandboxes, []string{"", id(), "pod:u-s1"}[rng.IntN(3)], boxes(id(), id())
		},
		func() (string, string, proto.Message) {
			return methodContainers, []string{"", id(), "pod:u-s1"}[rng.IntN(3)], &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{item(id(), id(), state()), nil}}
		},
		func() (string, string, proto.Message) { return methodContainerStatus, id(), statusOf(id(), state(), 1) },
		func() (string, string, proto.Message) {
			return methodSandboxStatus, id(), &runtimeapi.PodSandboxStatusResponse{}
		},
		func() (string, string, proto.Message) { return "ImageFsInfo", "", boxes("x") },
		func() (string, string, proto.Message) { return "StreamContainers", "", nil },
	}
	for range 300 {
		at := rng.Int64N(9000)
		e := recording.Entry{Kind: recording.Kind(rng.IntN(10)), Wall: rng.Int64N(3) * 1e9}
		method, about, m := answers[rng.IntN(len(answers))]()
		switch e.Method, e.About, e.Sent = method, about, (at-rng.Int64N(200)+50)*ms; {
		case rng.IntN(4) == 0:
			e.Code, m = codes.Code(rng.IntN(18)), nil
		case e.Kind == recording.KindEvent:
			e.Method = recording.MethodEvents
			m = &runtimeapi.ContainerEventResponse{
				ContainerId: id(), ContainerEventType: runtimeapi.ContainerEventType(rng.IntN(5)), CreatedAt: rng.Int64N(9000) * ms,
				PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: id()}, ContainersStatuses: []*runtimeapi.ContainerStatus{status(), nil},
			}
		case rng.IntN(8) == 0:
			e.Body, m = []byte{0x0a, 0xff}, nil
		}
		s.add(at, e, m)
	}
	return s
}

// Whatever a file holds, a replay comes to its end, and to the same each time.
func TestAnythingIsReplayed(t *testing.T) {
	for seed := range uint64(6) {
		path := anything(t, seed).file(recording.Header{StartedAt: 1e18, Mode: "hybrid"})
		for _, mode := range []pleg.Mode{pleg.ModeHybrid, pleg.ModeGeneric} {
			first := text(t, replayed(t, path, pleg.Config{Mode: mode, RPCTimeout: patience}))
			again := text(t, replayed(t, path, pleg.Config{Mode: mode, RPCTimeout: patience}))
			if !shuffled && string(first) != string(again) {
				t.Errorf("seed %d, %s: once more it is another:\n%s\nfirst:\n%s", seed, mode, again, first)
			}
		}
	}
}
