package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// criClients reach the same runtime by its own socket and by plegd's endpoint.
type criClients struct {
	*watched
	socket string // of plegd's endpoint
	ours   runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
}

// watchCRI starts a runtime and an agent that serves the endpoint.
func watchCRI(t *testing.T, f flavour, flags ...string) *criClients {
	t.Helper()
	dir := workDir(t, "cri")
	c := &criClients{socket: filepath.Join(dir, "s")}
	c.watched = watch(t, f, append([]string{"--cri-socket", c.socket}, flags...)...)
	conn, err := grpc.NewClient("unix://"+c.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c.ours, c.images = runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
	return c
}

// secondName is another name of the image: a status gives but one of them, a list the one that was asked for.
const secondName = "localhost/plegd/workload:2"

func (c *criClients) tagImage(t *testing.T) {
	t.Helper()
	cmd := c.rt.command("ctr", "--address", c.rt.socket, "--namespace", "k8s.io", "images", "tag", imageName, secondName)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tag image: %v\n%s", err, out)
	}
	eventually(t, settle, "CRI sees the tag", func() error {
		r, err := c.rt.images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: secondName}})
		if err == nil && r.GetImage() == nil {
			err = errors.New("no such image")
		}
		return err
	})
}

// manyPods makes pods of all kinds, several at a time: containers that run, have ended well or badly, or were
// never started; sandboxes that have stopped, share the node's network, or have annotations.
func (c *criClients) manyPods(t *testing.T, n int) {
	t.Helper()
	c.tagImage(t)
	var group errgroup.Group
	group.SetLimit(4)
	for i := range n {
		group.Go(func() error {
			p, err := c.rt.tryRunPod(t.Context(), fmt.Sprintf("p%d", i), func(config *runtimeapi.PodSandboxConfig) {
				config.Labels["group"] = fmt.Sprint(i % 3)
				config.Annotations = map[string]string{"e2e/note": fmt.Sprint(i)}
				if i%2 == 1 { // which also takes less time to make
					config.Hostname, config.Linux.SecurityContext.NamespaceOptions.Network = "", runtimeapi.NamespaceMode_NODE
				}
			})
			if err != nil {
				return err
			}
			switch i % 5 {
			case 0:
				_, err = p.tryRun(t.Context(), "main", 0, "pause")
			case 2:
				_, err = p.tryRun(t.Context(), "main", 2, "exit", fmt.Sprint(i%4))
			case 1, 3:
				_, err = c.rt.cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
					PodSandboxId: p.sandbox, SandboxConfig: p.config,
					Config: &runtimeapi.ContainerConfig{
						Metadata: &runtimeapi.ContainerMetadata{Name: "waiting"},
						Image:    &runtimeapi.ImageSpec{Image: secondName, Annotations: map[string]string{"a": "b"}},
						Labels:   map[string]string{"only": "this", labelPodUID: p.uid}, Linux: &runtimeapi.LinuxContainerConfig{},
					},
				})
			case 4:
				if _, err = p.tryRun(t.Context(), "main", 0, "exit", "0"); err == nil {
					_, err = c.rt.cri.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.sandbox})
				}
			}
			return err
		})
	}
	t.Cleanup(func() { c.removeAll() })
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// removeAll removes all pods, several at a time; one after the other takes as long as the test itself. What it
// can't remove, the runtime's own cleanup tells of.
func (c *criClients) removeAll() {
	ctx, cancel := context.WithTimeout(context.Background(), settle)
	defer cancel()
	list, err := c.rt.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return
	}
	var group errgroup.Group
	group.SetLimit(4)
	for _, s := range list.GetItems() {
		group.Go(func() error {
			_, _ = c.rt.cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()})
			_, _ = c.rt.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()})
			return nil
		})
	}
	_ = group.Wait() // none fails
}

// awaitQuiet waits until plegd has what the runtime has, and has no questions.
func (c *criClients) awaitQuiet(t *testing.T) {
	t.Helper()
	c.awaitTruth(t, c.rt)
	eventually(t, settle, "plegd has no questions", func() error {
		var s struct {
			Asks []any `json:"reinspections"`
		}
		if err := json.Unmarshal([]byte(c.getAPI(t, "/v1/status")), &s); err != nil {
			return err
		}
		if len(s.Asks) > 0 {
			return fmt.Errorf("%d", len(s.Asks))
		}
		return nil
	})
}

// What the endpoint says of pods is what the runtime says, field by field, and asking costs the runtime nothing.
func TestCRIEndpointSaysWhatTheRuntimeSays(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		flavour
		pods int
	}{{containerd2, 50}, {containerd16, 10}} {
		t.Run(tc.name, func(t *testing.T) {
			var flags []string
			if tc.stream { // then it lists once, so that no list of its own is taken for one that a client has caused
				flags = []string{"--relist-period", "10m"}
			}
			c := watchCRI(t, tc.flavour, flags...)
			c.manyPods(t, tc.pods)
			c.awaitQuiet(t)
			c.compareStatuses(t) // once, since a stopped sandbox is asked for once
			mark := c.proxy.mark()
			c.compareStatuses(t)
			c.compareLists(t)
			c.compareErrors(t)
			for _, call := range c.proxy.since(mark) {
				// Where there is no stream the agent's relists go on.
				if !strings.HasPrefix(call.method, "List") && !strings.HasPrefix(call.method, "Stream") || tc.stream {
					t.Errorf("the clients caused %s %s", call.method, call.id)
				}
			}
			if tc.stream {
				c.compareCrictl(t)
				c.compareCritest(t)
			}
		})
	}
}

func (c *criClients) compareStatuses(t *testing.T) {
	t.Helper()
	sandboxes, err := c.rt.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sandboxes.GetItems() {
		req := &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId()}
		theirs, err := c.rt.cri.PodSandboxStatus(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := c.ours.PodSandboxStatus(t.Context(), req)
		if d := cmp.Diff(theirs.GetStatus(), ours.GetStatus(), protocmp.Transform()); d != "" || err != nil {
			t.Errorf("sandbox %s (%s): %v\n%s", s.GetId(), s.GetMetadata().GetName(), err, d)
		}
	}
	containers, err := c.rt.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range containers.GetContainers() {
		req := &runtimeapi.ContainerStatusRequest{ContainerId: s.GetId()}
		theirs, err := c.rt.cri.ContainerStatus(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		ours, err := c.ours.ContainerStatus(t.Context(), req)
		if d := cmp.Diff(theirs.GetStatus(), ours.GetStatus(), protocmp.Transform()); d != "" || err != nil {
			t.Errorf("container %s (%s): %v\n%s", s.GetId(), s.GetState(), err, d)
		}
	}
}

// compareLists compares lists by every kind of filter, and their streaming forms.
func (c *criClients) compareLists(t *testing.T) {
	t.Helper()
	all, err := c.rt.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil || len(all.GetContainers()) == 0 {
		t.Fatalf("%d containers, %v", len(all.GetContainers()), err)
	}
	one := all.GetContainers()[0]
	sandbox, id := one.GetPodSandboxId(), one.GetId()
	for what, f := range map[string]*runtimeapi.PodSandboxFilter{
		"nil": nil, "empty": {}, "label": {LabelSelector: map[string]string{"group": "1"}},
		"labels": {LabelSelector: map[string]string{"group": "1", "app": "p1"}}, "no such label": {LabelSelector: map[string]string{"group": ""}},
		"ready":     {State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}},
		"not ready": {State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}},
		"id":        {Id: sandbox}, "short id": {Id: sandbox[:13]}, "shared beginning": {Id: ""}, "no such id": {Id: "nobody"}, "too long": {Id: sandbox + "0"},
	} {
		theirs, err := c.rt.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		ours, err := c.ours.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: f})
		if d := cmp.Diff(byID(theirs.GetItems()), byID(ours.GetItems()), protocmp.Transform()); d != "" || err != nil {
			t.Errorf("sandboxes, %s: %v\n%s", what, err, d)
		}
		stream, err := c.ours.StreamPodSandboxes(t.Context(), &runtimeapi.StreamPodSandboxesRequest{Filter: f})
		items, err := drained(stream, err, (*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes)
		if d := cmp.Diff(byID(theirs.GetItems()), byID(items), protocmp.Transform()); d != "" || err != nil {
			t.Errorf("sandboxes streamed, %s: %v\n%s", what, err, d)
		}
	}
	for what, f := range map[string]*runtimeapi.ContainerFilter{
		"nil": nil, "empty": {}, "label": {LabelSelector: map[string]string{"only": "this"}}, "no such label": {LabelSelector: map[string]string{"only": "that"}},
		"running": {State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}},
		"exited":  {State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED}},
		"created": {State: &runtimeapi.ContainerStateValue{}}, "unknown": {State: &runtimeapi.ContainerStateValue{State: 3}},
		"id": {Id: id}, "short id": {Id: id[:13]}, "no such id": {Id: "nobody"}, "a sandbox's id": {Id: sandbox},
		"pod": {PodSandboxId: sandbox}, "short pod": {PodSandboxId: sandbox[:13]}, "no such pod": {PodSandboxId: "nobody"},
		"both": {Id: id, PodSandboxId: sandbox}, "of another": {Id: id, PodSandboxId: id},
	} {
		theirs, err := c.rt.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		ours, err := c.ours.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: f})
		if d := cmp.Diff(byID(theirs.GetContainers()), byID(ours.GetContainers()), protocmp.Transform()); d != "" || err != nil {
			t.Errorf("containers, %s: %v\n%s", what, err, d)
		}
		stream, err := c.ours.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{Filter: f})
		items, err := drained(stream, err, (*runtimeapi.StreamContainersResponse).GetContainers)
		if d := cmp.Diff(byID(theirs.GetContainers()), byID(items), protocmp.Transform()); d != "" || err != nil {
			t.Errorf("containers streamed, %s: %v\n%s", what, err, d)
		}
	}
}

// compareErrors compares what is said of ids that are wrong: the code, and the words, which differ between
// versions of containerd.
func (c *criClients) compareErrors(t *testing.T) {
	t.Helper()
	all, err := c.rt.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{"", "nobody", all.GetContainers()[0].GetPodSandboxId() + "0", "with \"quotes\" and\nlines"}
	for i := range 16 { // a digit that more than one begins with
		ids = append(ids, fmt.Sprintf("%x", i))
	}
	for _, id := range ids {
		_, want := c.rt.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		_, got := c.ours.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if status.Code(got) != status.Code(want) || c.rt.stream && fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("container %q: %v, want %v", id, got, want)
		}
		_, want = c.rt.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		_, got = c.ours.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		if status.Code(got) != status.Code(want) || c.rt.stream && fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("sandbox %q: %v, want %v", id, got, want)
		}
	}
}

func byID[T interface{ GetId() string }](items []T) []T {
	items = slices.Clone(items)
	slices.SortFunc(items, func(a, b T) int { return strings.Compare(a.GetId(), b.GetId()) })
	if len(items) == 0 {
		return nil
	}
	return items
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
