package rpc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/simruntime"
)

func TestPods(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	_, web := n.Pod("web")
	db, _ := n.Pod("db")
	n.Container(db, "log")
	a := n.Start()
	a.Settle()
	c := api(t, n.Socket)

	resp, err := c.GetPod(t.Context(), &plegdv1.GetPodRequest{Key: "uid-web", Full: true})
	if err != nil {
		t.Fatal(err)
	}
	p := resp.Pod
	if p.Uid != "uid-web" || p.Name != "web" || p.Namespace != "default" || p.Labels["app"] != "web" || len(p.Ips) != 1 ||
		len(p.Containers) != 1 || p.Containers[0].Id != web || p.Containers[0].State != "running" || p.Containers[0].ExitCode != nil {
		t.Errorf("pod %v", p)
	}
	var status runtimeapi.ContainerStatus
	if err := p.Containers[0].Status.UnmarshalTo(&status); err != nil || status.Id != web || status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		t.Errorf("full status %v, %v", &status, err)
	}
	var sandbox runtimeapi.PodSandboxStatus
	if err := p.Sandboxes[0].Status.UnmarshalTo(&sandbox); err != nil || sandbox.Metadata.GetUid() != "uid-web" {
		t.Errorf("full status %v, %v", &sandbox, err)
	}

	for _, tt := range []struct {
		filter *plegdv1.Filter
		want   []string
	}{
		{nil, []string{"db", "web"}},
		{&plegdv1.Filter{Pods: []string{"web"}}, []string{"web"}},
		{&plegdv1.Filter{LabelSelector: "app!=web"}, []string{"db"}},
		{&plegdv1.Filter{Containers: []string{"log"}}, []string{"db"}},
		{&plegdv1.Filter{Namespaces: []string{"other"}}, nil},
	} {
		pods, at := listPods(t, c, &plegdv1.ListPodsRequest{Filter: tt.filter})
		if at != a.Generator.Position().String() {
			t.Errorf("position %s", at)
		}
		var names []string
		for _, p := range pods {
			names = append(names, p.Name)
			if p.Containers[0].Status != nil {
				t.Error("full statuses, unasked for")
			}
		}
		if !equalStrings(names, tt.want) {
			t.Errorf("%v: %v, want %v", tt.filter, names, tt.want)
		}
	}
	_, err = c.GetPod(t.Context(), &plegdv1.GetPodRequest{Key: p.Key + "x"})
	checkError(t, err, codes.NotFound, plegdv1.Reason_REASON_UNSPECIFIED)
	list, err := c.ListPods(t.Context(), &plegdv1.ListPodsRequest{Filter: &plegdv1.Filter{Types: []string{"ContainerDied"}}})
	if err == nil {
		_, err = list.Recv()
	}
	checkError(t, err, codes.InvalidArgument, plegdv1.Reason_REASON_UNSPECIFIED, "types")
}

func equalStrings(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func listPods(t *testing.T, c plegdv1.PodLifecycleClient, req *plegdv1.ListPodsRequest) (pods []*plegdv1.Pod, position string) {
	t.Helper()
	stream, err := c.ListPods(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return pods, position
		}
		if err != nil {
			t.Fatal(err)
		}
		if proto.Size(m) > 512<<10 && len(m.Pods) > 1 {
			t.Errorf("a chunk of %d pods has %d bytes", len(m.Pods), proto.Size(m))
		}
		pods, position = append(pods, m.Pods...), m.Position
	}
}

// manyPods starts an agent with so many pods, of some 12 KB each.
func manyPods(t *testing.T, n *rpctest.Node, pods int) *rpctest.Agent {
	t.Helper()
	large := strings.Repeat("x", 4000) // what is kept of labels is bounded
	for i := range pods {
		_, err := n.Runtime.RunPodSandbox(simruntime.PodSpec{
			Namespace: "default", Name: "p", UID: string(rune('a'+i/26)) + string(rune('a'+i%26)), Labels: map[string]string{"a": large, "b": large, "c": large},
		})
		n.Must(err)
	}
	a := n.Start()
	a.Settle()
	return a
}

// A list and a snapshot that are large come in parts that every client can take.
func TestPodsInChunks(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	const pods = 80
	manyPods(t, n, pods)
	c := api(t, n.Socket)
	list, at := listPods(t, c, &plegdv1.ListPodsRequest{})
	if len(list) != pods || at == "" {
		t.Errorf("%d pods, position %q", len(list), at)
	}
	stream, err := c.Watch(t.Context(), &plegdv1.WatchRequest{From: &plegdv1.WatchRequest_Snapshot{}, Once: true})
	if err != nil {
		t.Fatal(err)
	}
	keys, chunks := map[string]bool{}, 0
	for ended := false; ; {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if ended {
			t.Error("something comes after the end of the snapshot")
		}
		if m.GetPods() != nil {
			chunks++
		}
		for _, p := range m.GetPods().GetPods() {
			keys[p.Key] = true
		}
		if proto.Size(m) > 300<<10 {
			t.Errorf("a chunk has %d bytes", proto.Size(m))
		}
		ended = m.GetBookmark().GetSnapshotEnd()
	}
	if len(keys) != pods || chunks < 4 {
		t.Errorf("%d pods in %d chunks", len(keys), chunks)
	}
}

// An answer that is newer than a time is of a call that was sent then or later.
func TestGetPodNewer(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Config.RelistPeriod, n.Config.RelistPeriodMax = time.Hour, time.Hour
	_, web := n.Pod("web")
	a := n.Start()
	c := api(t, n.Socket)
	a.Settle()
	lose, err := n.Runtime.AddRule(simruntime.Rule{Method: simruntime.MethodEvent, Drop: true})
	n.Must(err)
	n.Must(n.Runtime.ExitContainer(web, 3, ""))
	state := func(newer *timestamppb.Timestamp) string {
		resp, err := c.GetPod(t.Context(), &plegdv1.GetPodRequest{Key: "uid-web", NewerThan: newer})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Pod.Containers[0].State
	}
	if s := state(nil); s != "running" || lose.Acted() == 0 {
		t.Fatalf("the cache says %s though no event came and nothing was listed", s)
	}
	begin := time.Now()
	if s := state(timestamppb.New(begin.Add(300 * time.Millisecond))); s != "exited" || time.Since(begin) < 300*time.Millisecond {
		t.Errorf("%s after %v", s, time.Since(begin))
	}

	hang, err := n.Runtime.AddRule(simruntime.Rule{Method: "ListPodSandbox", Hang: true})
	n.Must(err)
	hang2, err := n.Runtime.AddRule(simruntime.Rule{Method: "StreamPodSandboxes", Hang: true})
	n.Must(err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = c.GetPod(ctx, &plegdv1.GetPodRequest{Key: "uid-web", NewerThan: timestamppb.Now()})
	checkError(t, err, codes.DeadlineExceeded, plegdv1.Reason_REASON_UNSPECIFIED)
	hang.Remove()
	hang2.Remove()
}

func TestRequestRelist(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Config.RelistPeriod, n.Config.RelistPeriodMax = time.Hour, time.Hour
	_, web := n.Pod("web")
	a := n.Start()
	c := api(t, n.Socket)
	a.Settle()
	_, err := n.Runtime.AddRule(simruntime.Rule{Method: simruntime.MethodEvent, Drop: true})
	n.Must(err)
	n.Must(n.Runtime.ExitContainer(web, 3, ""))
	before := a.Generator.Position().String()
	resp, err := c.RequestRelist(t.Context(), &plegdv1.RequestRelistRequest{Wait: true})
	if err != nil {
		t.Fatal(err)
	}
	rpctest.WaitFor(t, "the death to be told", func() bool { return a.Generator.Position().String() != before })
	if g := once(t, c, after(before)); len(g.events) == 0 || g.events[0].Type != "ContainerDied" || g.events[0].GetExitCode() != 3 {
		t.Errorf("events %v after %s", g.events, resp.Position)
	}

	// Nobody waits, and it is made all the same.
	n.Pod("db")
	for range 20 {
		if _, err := c.RequestRelist(t.Context(), &plegdv1.RequestRelistRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	rpctest.WaitFor(t, "the new pod", func() bool { _, err := a.Generator.Pod("uid-db"); return err == nil })

	// One that is asked for while one goes on is made after it.
	lists := func() int { return n.Runtime.CallStats("StreamPodSandboxes").Started }
	rpctest.WaitFor(t, "the lists to end", func() bool { return n.Runtime.CallStats("StreamPodSandboxes").InFlight == 0 })
	a.Settle()
	begun := lists()
	hang, err := n.Runtime.AddRule(simruntime.Rule{Method: "StreamPodSandboxes", Hang: true})
	n.Must(err)
	for want := begun + 1; want <= begun+2; want++ {
		if _, err := c.RequestRelist(t.Context(), &plegdv1.RequestRelistRequest{}); err != nil {
			t.Fatal(err)
		}
		if want == begun+2 {
			hang.Remove()
		}
		rpctest.WaitFor(t, "the list", func() bool { return lists() >= want })
	}

	n.ListsAre(simruntime.Rule{Code: codes.Internal, Message: "broken"})
	_, err = c.RequestRelist(t.Context(), &plegdv1.RequestRelistRequest{Wait: true})
	checkError(t, err, codes.Unavailable, plegdv1.Reason_REASON_RUNTIME, "the list failed", "broken")
}

func TestStatus(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Pod("web")
	a := n.Start()
	a.Settle()
	c := api(t, n.Socket)
	s, err := c.Status(t.Context(), &plegdv1.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	at := a.Generator.Position()
	if !s.Live || !s.Ready || s.Mode != "hybrid" || s.Runtime.Name != "containerd" || s.Journal.Newest != at.String() || s.Journal.Epoch != at.Epoch.String() ||
		s.Journal.Entries != int64(at.Seq) || s.Journal.Bytes == 0 || s.Stream.State != "up" || !s.Relist.Periodic || s.Relist.Period.AsDuration() < 100*time.Millisecond {
		t.Errorf("status %v", s)
	}
	if g := once(t, c, after(s.Journal.Oldest)); len(g.events) != int(s.Journal.Entries) {
		t.Errorf("after the oldest position come %d events of %d", len(g.events), s.Journal.Entries)
	}
}

func TestHealthService(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Config.RelistThreshold = time.Second
	n.Start()
	h := healthpb.NewHealthClient(dial(t, n.Socket))
	for _, service := range []string{"", "plegd.v1.PodLifecycle"} {
		resp, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || resp.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", service, resp, err)
		}
	}
	stream, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	wait := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if m.Status == want {
				return
			}
		}
	}
	wait(healthpb.HealthCheckResponse_SERVING)
	n.Runtime.Freeze()
	wait(healthpb.HealthCheckResponse_NOT_SERVING)
	n.Runtime.Thaw()
	wait(healthpb.HealthCheckResponse_SERVING)
}

func TestReflection(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Start()
	stream, err := reflectionpb.NewServerReflectionClient(dial(t, n.Socket)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.Must(stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}))
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, s := range m.GetListServicesResponse().GetService() {
		found = found || s.Name == "plegd.v1.PodLifecycle"
	}
	if !found {
		t.Errorf("services %v", m)
	}
	n.Must(stream.CloseSend())
}
