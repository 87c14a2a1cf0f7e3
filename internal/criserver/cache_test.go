package criserver

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// listsDiffer makes the runtime's lists say of images what its statuses don't.
func listsDiffer(t *testing.T, rt *simruntime.Runtime) {
	of := func(list []*runtimeapi.Container) {
		for i, c := range list {
			c = proto.CloneOf(c)
			c.Image, c.ImageRef, c.ImageId = &runtimeapi.ImageSpec{Image: "sha256:" + c.Id, UserSpecifiedImage: "user"}, "sha256:"+c.Id, c.Id
			c.Annotations = map[string]string{"listed": c.Id}
			list[i] = c
		}
	}
	simtest.Rule(t, rt, simruntime.Rule{Edit: func(m proto.Message) {
		switch m := m.(type) {
		case *runtimeapi.ListContainersResponse:
			of(m.GetContainers())
		case *runtimeapi.StreamContainersResponse:
			of(m.GetContainers())
		}
	}})
}

// manyPods makes pods of several kinds.
func (n *node) manyPods(count int) {
	n.t.Helper()
	for i := range count {
		sandbox, container := n.pod(fmt.Sprint("p", i))
		switch i % 4 {
		case 1:
			n.must(n.rt.ExitContainer(container, 3, "Error"))
		case 2:
			_, err := n.rt.CreateContainer(sandbox, simruntime.ContainerSpec{Name: "waits", Labels: map[string]string{"only": "this"}})
			n.must(err)
		case 3:
			n.must(n.rt.ExitContainer(container, 0, ""))
			n.must(n.rt.StopPodSandbox(sandbox))
		}
	}
}

// The cached methods say what the runtime says, and cost it nothing.
func TestCachedMethodsCauseNoCall(t *testing.T) {
	for name, profile := range map[string]simruntime.Profile{"containerd": simruntime.Containerd24, "containerd-1.6": simruntime.Containerd16, "cri-o": simruntime.CRIO} {
		t.Run(name, func(t *testing.T) { cachedMethodsCauseNoCall(t, profile) })
	}
}

func cachedMethodsCauseNoCall(t *testing.T, profile simruntime.Profile) {
	n := start(t, simruntime.Config{Profile: profile})
	listsDiffer(t, n.rt)
	n.manyPods(12)
	n.must(n.gen.Relist(t.Context())) // of what there is no event of
	n.quiet()
	truth := n.rt.Truth()
	var short string
	for _, c := range truth.Containers {
		short = c.Status.GetId()[:14]
	}
	sandbox := truth.Sandboxes[0].GetId()
	ready := &runtimeapi.PodSandboxStateValue{}
	sandboxFilters := []*runtimeapi.PodSandboxFilter{
		nil, {}, {Id: sandbox}, {Id: sandbox[:14]}, {Id: "nobody"}, {State: ready}, {LabelSelector: map[string]string{"io.kubernetes.pod.name": "p3"}},
		{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}, LabelSelector: map[string]string{}},
		{LabelSelector: map[string]string{"no": ""}}, {State: &runtimeapi.PodSandboxStateValue{State: 7}},
	}
	containerFilters := []*runtimeapi.ContainerFilter{
		nil, {}, {Id: short}, {Id: "nobody"}, {PodSandboxId: sandbox[:14]}, {PodSandboxId: "nobody"}, {LabelSelector: map[string]string{"only": "this"}},
		{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED}}, {State: &runtimeapi.ContainerStateValue{}},
		{Id: short, PodSandboxId: "nobody"},
	}
	var sandboxes, containers [][]proto.Message
	for _, f := range sandboxFilters {
		r, err := n.direct.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: f})
		n.must(err)
		sandboxes = append(sandboxes, sorted(r.GetItems()))
	}
	for _, f := range containerFilters {
		r, err := n.direct.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: f})
		n.must(err)
		containers = append(containers, sorted(r.GetContainers()))
	}
	if len(sandboxes[0]) != 12 || len(containers[0]) != 15 || len(sandboxes[3]) != 1 || len(containers[2]) != 1 || len(containers[4]) == 0 {
		t.Fatalf("the runtime lists %d and %d", len(sandboxes[0]), len(containers[0]))
	}
	for _, s := range truth.Sandboxes { // each that has stopped is asked for once
		_, err := n.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
		n.must(err)
	}

	before := n.calls()
	for i, f := range sandboxFilters {
		r, err := n.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: f})
		same(t, fmt.Sprint("sandboxes ", f), sandboxes[i], sorted(r.GetItems()), err)
		stream, err := n.cri.StreamPodSandboxes(t.Context(), &runtimeapi.StreamPodSandboxesRequest{Filter: f})
		items, err := drained(stream, err, (*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes)
		same(t, fmt.Sprint("sandboxes streamed ", f), sandboxes[i], sorted(items), err)
	}
	for i, f := range containerFilters {
		r, err := n.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: f})
		same(t, fmt.Sprint("containers ", f), containers[i], sorted(r.GetContainers()), err)
		stream, err := n.cri.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{Filter: f})
		items, err := drained(stream, err, (*runtimeapi.StreamContainersResponse).GetContainers)
		same(t, fmt.Sprint("containers streamed ", f), containers[i], sorted(items), err)
	}
	for _, s := range truth.Sandboxes {
		if !settled(s) { // CRI-O's keep their address: each time they are asked for
			continue
		}
		for _, id := range []string{s.GetId(), s.GetId()[:20]} {
			r, err := n.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
			same(t, "sandbox "+id, s, r.GetStatus(), err)
		}
	}
	for _, c := range truth.Containers {
		for _, id := range []string{c.Status.GetId(), c.Status.GetId()[:20]} {
			r, err := n.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
			same(t, "container "+id, c.Status, r.GetStatus(), err)
		}
	}
	for _, id := range []string{"nobody", sandbox} {
		_, err := n.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if status.Code(err) != codes.NotFound || !strings.HasSuffix(err.Error(), fmt.Sprintf("container %q: not found", id)) {
			t.Errorf("container %s: %v", id, err)
		}
	}
	if _, err := n.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "nobody"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	if after := n.calls(); after != before {
		t.Errorf("%d calls to the runtime", after-before)
	}
	// So the count counts.
	if _, err := n.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: short, Verbose: true}); err != nil || n.calls() != before+1 {
		t.Errorf("verbose: %d calls, %v", n.calls()-before, err)
	}
}

// What nobody knows which it is meant is an error, as containerd has it.
func TestIDsThatAreNone(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.manyPods(17) // so that two begin with the same digit
	n.quiet()
	shared := ""
	seen := map[byte]bool{}
	for _, s := range n.rt.Truth().Sandboxes {
		if seen[s.GetId()[0]] {
			shared = s.GetId()[:1]
		}
		seen[s.GetId()[0]] = true
	}
	for id, want := range map[string]string{"": "prefix can't be empty", shared: "Multiple IDs found with provided prefix: " + shared} {
		_, err := n.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		if status.Code(err) != codes.Unknown || !strings.HasSuffix(err.Error(), "find sandbox: "+want) {
			t.Errorf("%q: %v", id, err)
		}
	}
	r, err := n.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: shared}})
	if err != nil || len(r.GetItems()) != 0 {
		t.Errorf("%d sandboxes, %v", len(r.GetItems()), err)
	}
	long := strings.Repeat("x", maxRequest/2)
	if _, err := n.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: long}); status.Code(err) != codes.NotFound || len(err.Error()) > 500 {
		t.Errorf("a long id: %.100v", err)
	}
}

// The list item of what is new is asked for once, whether or not somebody lists,
// and what is gone is forgotten.
func TestItemsAreLearntOnce(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.quiet()
	sandbox, container := n.pod("a")
	n.quiet()
	lists := n.rt.CallStats("StreamPodSandboxes").Started + n.rt.CallStats("StreamContainers").Started
	for range 10 {
		r, err := n.cri.ListContainers(t.Context(), nil)
		if err != nil || len(r.GetContainers()) != 1 {
			t.Fatal(r, err)
		}
	}
	if more := n.rt.CallStats("StreamPodSandboxes").Started + n.rt.CallStats("StreamContainers").Started; more != lists {
		t.Errorf("%d more lists", more-lists)
	}
	n.must(n.rt.ExitContainer(container, 0, ""))
	n.quiet()
	r, err := n.cri.ListContainers(t.Context(), nil)
	if err != nil || r.GetContainers()[0].GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Error(r, err)
	}
	n.must(n.rt.RemovePodSandbox(sandbox))
	n.pod("b")
	n.quiet()
	h := n.server.shelf
	eventually(t, "what is gone is forgotten", func() error { // after the event of its removal
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.sandboxes[sandbox] != nil || h.containers[container] != nil || len(h.sandboxes) != 1 || len(h.containers) != 1 {
			return fmt.Errorf("items of %d sandboxes, %d containers", len(h.sandboxes), len(h.containers))
		}
		return nil
	})
}

// While the runtime's list lacks what the cache has, the runtime is asked.
func TestItemThatCanNotBeLearnt(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.pod("a")
	n.quiet()
	rule := simtest.Rule(t, n.rt, simruntime.Rule{Method: "StreamContainers", Code: codes.Internal, Message: "broken"})
	n.pod("b")
	eventually(t, "the cache has it", func() error {
		if all := n.gen.Entities(); len(all) != 4 {
			return fmt.Errorf("%d", len(all))
		}
		return nil
	})
	if _, err := n.cri.ListContainers(t.Context(), nil); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "broken") {
		t.Errorf("%v", err)
	}
	// It isn't looked for again for each client that asks, whose own calls go through.
	before := n.rt.CallStats("StreamContainers").Started
	const asks = 30
	for range asks {
		_, _ = n.cri.ListContainers(t.Context(), nil)
	}
	if more := n.rt.CallStats("StreamContainers").Started - before; more < asks || more > 2*asks {
		t.Errorf("%d calls for %d that were read through", more, asks)
	}
	rule.Remove()
	r, err := n.cri.ListContainers(t.Context(), nil)
	if err != nil || len(r.GetContainers()) != 2 {
		t.Error(r, err)
	}
}

// A streamed list comes in parts that any client takes.
func TestBatches(t *testing.T) {
	big := strings.Repeat("x", batchBytes/3)
	for _, tc := range []struct {
		items, size int
		want        []int
	}{{0, 1, nil}, {1, 1, []int{1}}, {batchItems + 1, 1, []int{batchItems, 1}}, {5, len(big), []int{2, 2, 1}}, {2, 3 * batchBytes, []int{1, 1}}} {
		var items []*runtimeapi.Container
		for range tc.items {
			items = append(items, &runtimeapi.Container{Id: strings.Repeat("x", tc.size)})
		}
		var got []int
		total := 0
		parts, sizes := batches(items)
		for i, part := range parts {
			got = append(got, len(part))
			total += sizes[i]
		}
		if !slices.Equal(got, tc.want) || total < tc.items*tc.size || total > tc.items*(tc.size+16) {
			t.Errorf("%d of %d bytes: %v, %d bytes", tc.items, tc.size, got, total)
		}
	}
}

func sorted[T interface {
	proto.Message
	GetId() string
}](items []T) []proto.Message {
	items = slices.Clone(items)
	slices.SortFunc(items, func(a, b T) int { return strings.Compare(a.GetId(), b.GetId()) })
	var out []proto.Message
	for _, i := range items {
		out = append(out, i)
	}
	return out
}

func same(t *testing.T, what string, want, got any, err error) {
	t.Helper()
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" || err != nil {
		t.Errorf("%s: %v\n%s", what, err, d)
	}
}

func drained[T, Resp any](stream grpc.ServerStreamingClient[Resp], err error, items func(*Resp) []T) (all []T, _ error) {
	if err != nil {
		return nil, err
	}
	for {
		part, err := stream.Recv()
		if err == io.EOF { //nolint:errorlint // gRPC returns it bare
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, items(part)...)
	}
}
