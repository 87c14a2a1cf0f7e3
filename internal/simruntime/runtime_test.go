package simruntime_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	sim "github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

// reader collects the events of one subscription.
type reader struct {
	t      testing.TB
	cancel context.CancelFunc
	events chan *sim.Event
	err    error // valid once events is closed
}

// subscribe opens a stream. Over a real socket a subscription exists only once
// the server has it, so tests wait for that.
func subscribe(t testing.TB, conn *grpc.ClientConn) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := runtimeapi.NewRuntimeServiceClient(conn).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, cancel: cancel, events: make(chan *sim.Event, 10_000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(r.events)
		for {
			ev, err := stream.Recv()
			if err != nil {
				r.err = err
				return
			}
			r.events <- ev
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

func (r *reader) next() *sim.Event {
	r.t.Helper()
	select {
	case ev, ok := <-r.events:
		if !ok {
			r.t.Fatalf("stream ended: %v", r.err)
		}
		return ev
	case <-time.After(5 * time.Second):
		r.t.Fatal("no event came")
	}
	return nil
}

// end waits for the end of the stream and returns its error.
func (r *reader) end() error {
	r.t.Helper()
	for {
		select {
		case _, ok := <-r.events:
			if !ok {
				return r.err
			}
		case <-time.After(5 * time.Second):
			r.t.Fatal("the stream didn't end")
		}
	}
}

func waitSubscribers(t testing.TB, rt *sim.Runtime, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := rt.WaitSubscribers(ctx, n); err != nil {
		t.Fatalf("wait for %d subscribers: %v (%+v)", n, err, rt.EventStats())
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Fatalf("got code %s (%v), want %s", got, err, want)
	}
}

var podSpec = sim.PodSpec{Namespace: "default", Name: "web", UID: "u1", Labels: map[string]string{"app": "web"}}

// pod runs a pod with one running container.
func pod(t testing.TB, rt *sim.Runtime, uid string) (sandbox, container string) {
	t.Helper()
	spec := podSpec
	spec.UID = uid
	sandbox = must(rt.RunPodSandbox(spec))
	container = must(rt.CreateContainer(sandbox, sim.ContainerSpec{Name: "app"}))
	check(t, rt.StartContainer(container))
	return sandbox, container
}

// TestLifeOverTheSocket drives a full life by CRI calls alone and compares
// every event's parts with what containerd 2.4.2 was seen to send.
func TestLifeOverTheSocket(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{DualStack: true})
	conn := simtest.Dial(t, path)
	c := runtimeapi.NewRuntimeServiceClient(conn)
	ctx := t.Context()
	r := subscribe(t, conn)
	waitSubscribers(t, rt, 1)

	sandbox := must(c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: podSpec.Config()})).PodSandboxId
	config := sim.ContainerSpec{Name: "app"}.Config(podSpec.Config().Metadata)
	app := must(c.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, Config: config})).ContainerId
	must(c.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: app}))
	check(t, rt.ExitContainer(app, 7, ""))
	must(c.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox}))
	must(c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox}))

	type seen struct {
		Type       runtimeapi.ContainerEventType
		Sandbox    bool // it is about the sandbox
		State      runtimeapi.PodSandboxState
		IPs        int
		ZeroTime   bool
		Containers []string
		Exit       int32
	}
	var got []seen
	for range 8 {
		ev := r.next()
		s := seen{Type: ev.ContainerEventType, Sandbox: ev.ContainerId == sandbox, State: ev.PodSandboxStatus.State}
		if ev.PodSandboxStatus.Network.Ip != "" {
			s.IPs = 1 + len(ev.PodSandboxStatus.Network.AdditionalIps)
		}
		s.ZeroTime = ev.PodSandboxStatus.CreatedAt == -6795364578871345152
		for _, st := range ev.ContainersStatuses {
			s.Containers = append(s.Containers, st.State.String())
			s.Exit = st.ExitCode
		}
		if age := time.Since(time.Unix(0, ev.CreatedAt)); age < 0 || age > time.Minute {
			t.Errorf("created_at of %v is %v ago", ev.ContainerEventType, age)
		}
		got = append(got, s)
	}
	const notReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	want := []seen{
		{Type: created, Sandbox: true, IPs: 2},
		{Type: started, Sandbox: true, IPs: 2},
		{Type: created, IPs: 2, Containers: []string{"CONTAINER_CREATED"}},
		{Type: started, IPs: 2, Containers: []string{"CONTAINER_RUNNING"}},
		{Type: stopped, IPs: 2, Containers: []string{"CONTAINER_EXITED"}, Exit: 7},
		{Type: stopped, Sandbox: true, State: notReady, Containers: []string{"CONTAINER_EXITED"}, Exit: 7},
		{Type: deleted, State: notReady},
		{Type: deleted, Sandbox: true, State: notReady, ZeroTime: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if len(sandbox) != 64 || len(app) != 64 || sandbox == app {
		t.Errorf("ids %q and %q don't look like containerd's", sandbox, app)
	}
}

func TestStatusAndListFields(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{})
	c := runtimeapi.NewRuntimeServiceClient(simtest.Dial(t, path))
	ctx := t.Context()
	sandbox, app := pod(t, rt, "u1")

	st := must(c.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox}))
	if st.Timestamp != 0 || len(st.ContainersStatuses) != 0 {
		t.Errorf("containerd sets neither timestamp nor containers_statuses, got %d and %d", st.Timestamp, len(st.ContainersStatuses))
	}
	if st.Status.Network.Ip == "" || st.Status.State != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("ready sandbox: %v", st.Status)
	}
	cs := must(c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: app})).Status
	if cs.StartedAt == 0 || cs.FinishedAt != 0 || cs.Reason != "" {
		t.Errorf("running container: %v", cs)
	}
	item := must(c.ListContainers(ctx, &runtimeapi.ListContainersRequest{})).Containers[0]
	if item.PodSandboxId != sandbox || item.CreatedAt != cs.CreatedAt || item.Labels[sim.LabelPodUID] != "u1" || item.ImageId != "" {
		t.Errorf("list item: %v", item)
	}

	check(t, rt.ExitContainer(app, 0, ""))
	cs = must(c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: app})).Status
	if cs.Reason != sim.ReasonCompleted || cs.FinishedAt == 0 {
		t.Errorf("exit 0: %v", cs)
	}
	// The pause process dies: the address stays until the network is torn down.
	check(t, rt.ExitSandbox(sandbox))
	st = must(c.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox}))
	if st.Status.Network.Ip == "" || st.Status.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("sandbox that died: %v", st.Status)
	}
	check(t, rt.StopPodSandbox(sandbox))
	st = must(c.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox}))
	if st.Status.Network.Ip != "" {
		t.Errorf("sandbox that was stopped keeps %s", st.Status.Network.Ip)
	}

	host := podSpec
	host.UID, host.HostNetwork = "u2", true
	id := must(rt.RunPodSandbox(host))
	st = must(c.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}))
	if st.Status.Network.GetIp() != "" || st.Status.Linux.Namespaces.Options.Network != runtimeapi.NamespaceMode_NODE {
		t.Errorf("host network pod: %v", st.Status)
	}
}

func TestFilters(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{})
	c := runtimeapi.NewRuntimeServiceClient(simtest.Dial(t, path))
	sb1, c1 := pod(t, rt, "u1")
	sb2, c2 := pod(t, rt, "u2")
	check(t, rt.ExitContainer(c2, 1, ""))
	check(t, rt.StopPodSandbox(sb2))

	sandboxState := func(s runtimeapi.PodSandboxState) *runtimeapi.PodSandboxStateValue {
		return &runtimeapi.PodSandboxStateValue{State: s}
	}
	for name, tc := range map[string]struct {
		filter *runtimeapi.PodSandboxFilter
		want   []string
	}{
		"none":        {nil, []string{sb1, sb2}},
		"id":          {&runtimeapi.PodSandboxFilter{Id: sb2}, []string{sb2}},
		"short id":    {&runtimeapi.PodSandboxFilter{Id: sb2[:13]}, []string{sb2}},
		"unknown id":  {&runtimeapi.PodSandboxFilter{Id: "nothing"}, nil},
		"ready":       {&runtimeapi.PodSandboxFilter{State: sandboxState(runtimeapi.PodSandboxState_SANDBOX_READY)}, []string{sb1}},
		"not ready":   {&runtimeapi.PodSandboxFilter{State: sandboxState(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)}, []string{sb2}},
		"label":       {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{sim.LabelPodUID: "u1"}}, []string{sb1}},
		"other label": {&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"app": "db"}}, nil},
	} {
		t.Run("sandboxes/"+name, func(t *testing.T) {
			var got []string
			for _, s := range must(c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: tc.filter})).Items {
				got = append(got, s.Id)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
	for name, tc := range map[string]struct {
		filter *runtimeapi.ContainerFilter
		want   []string
	}{
		"none":    {nil, []string{c1, c2}},
		"id":      {&runtimeapi.ContainerFilter{Id: c1[:20]}, []string{c1}},
		"sandbox": {&runtimeapi.ContainerFilter{PodSandboxId: sb2}, []string{c2}},
		"exited":  {&runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED}}, []string{c2}},
		"label":   {&runtimeapi.ContainerFilter{LabelSelector: map[string]string{sim.LabelPodUID: "u2"}}, []string{c2}},
		"both":    {&runtimeapi.ContainerFilter{Id: c1, PodSandboxId: sb2}, nil},
	} {
		t.Run("containers/"+name, func(t *testing.T) {
			var got []string
			for _, s := range must(c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: tc.filter})).Containers {
				got = append(got, s.Id)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestCodes(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{})
	c := runtimeapi.NewRuntimeServiceClient(simtest.Dial(t, path))
	ctx := t.Context()
	sandbox, app := pod(t, rt, "u1")

	_, err := c.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "nothing"})
	wantCode(t, err, codes.NotFound)
	_, err = c.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: "nothing"})
	wantCode(t, err, codes.NotFound)
	_, err = c.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: "nothing"})
	wantCode(t, err, codes.NotFound)
	_, err = c.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: "nothing", Config: sim.ContainerSpec{Name: "x"}.Config(nil)})
	wantCode(t, err, codes.NotFound)
	_, err = c.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: app})
	wantCode(t, err, codes.Unknown)
	_, err = c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: podSpec.Config()})
	wantCode(t, err, codes.Unknown)
	_, err = c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{})
	wantCode(t, err, codes.Unknown)
	_, err = c.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: app})
	wantCode(t, err, codes.Unimplemented)
	// These are idempotent.
	must(c.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: "nothing"}))
	must(c.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: "nothing"}))
	must(c.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: "nothing"}))
	must(c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: "nothing"}))
	// A name is free again once its owner is removed.
	must(c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox}))
	must(c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: podSpec.Config()}))

	v := must(c.Version(ctx, &runtimeapi.VersionRequest{}))
	if v.RuntimeName != "containerd" || v.RuntimeVersion != "v2.4.2" || v.RuntimeApiVersion != "v1" {
		t.Errorf("version: %v", v)
	}
	if s := must(c.Status(ctx, &runtimeapi.StatusRequest{})); len(s.Status.Conditions) != 2 || !s.Status.Conditions[0].Status {
		t.Errorf("status: %v", s)
	}
}

func TestFailedStartHasNoEvent(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{})
	r := subscribe(t, simtest.Dial(t, path))
	waitSubscribers(t, rt, 1)
	sandbox := must(rt.RunPodSandbox(podSpec))
	id := must(rt.CreateContainer(sandbox, sim.ContainerSpec{Name: "bad", FailStart: "no such file"}))
	if err := rt.StartContainer(id); !errors.Is(err, sim.ErrStartFailed) {
		t.Fatalf("start: %v", err)
	}
	st := must(rt.ContainerStatus(id))
	if st.State != runtimeapi.ContainerState_CONTAINER_EXITED || st.ExitCode != 128 || st.StartedAt != 0 || st.FinishedAt == 0 || st.Reason != "StartError" {
		t.Errorf("status: %v", st)
	}
	check(t, rt.RemovePodSandbox(sandbox))
	var got []runtimeapi.ContainerEventType
	for range 6 {
		got = append(got, r.next().ContainerEventType)
	}
	want := []runtimeapi.ContainerEventType{created, started, created, stopped, deleted, deleted}
	if !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

func TestStreamingLists(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{StreamBatch: 2})
	c := runtimeapi.NewRuntimeServiceClient(simtest.Dial(t, path))
	for _, uid := range []string{"a", "b", "c", "d", "e"} {
		pod(t, rt, uid)
	}
	var sizes []int
	sandboxes := must(c.StreamPodSandboxes(t.Context(), &runtimeapi.StreamPodSandboxesRequest{}))
	for {
		batch, err := sandboxes.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		check(t, err)
		sizes = append(sizes, len(batch.PodSandboxes))
	}
	if !slices.Equal(sizes, []int{2, 2, 1}) {
		t.Errorf("sandbox batches %v", sizes)
	}
	containers := must(c.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{sim.LabelPodUID: "d"}},
	}))
	batch := must(containers.Recv())
	if len(batch.Containers) != 1 || batch.Containers[0].Labels[sim.LabelPodUID] != "d" {
		t.Errorf("filtered: %v", batch)
	}

	// The stream breaks after its first message.
	simtest.Rule(t, rt, sim.Rule{Method: "StreamPodSandboxes", After: true, Code: codes.Internal})
	sandboxes = must(c.StreamPodSandboxes(t.Context(), &runtimeapi.StreamPodSandboxesRequest{}))
	must(sandboxes.Recv())
	_, err := sandboxes.Recv()
	wantCode(t, err, codes.Internal)
}

// TestListTooLargeForOneMessage is what a node with too many dead containers
// looks like (kubernetes#63858), and what streaming lists are for.
func TestListTooLargeForOneMessage(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{})
	c := runtimeapi.NewRuntimeServiceClient(simtest.Dial(t, path))
	sandbox := must(rt.RunPodSandbox(podSpec))
	padding := map[string]string{"padding": string(make([]byte, 1<<20))}
	for i := range 17 {
		must(rt.CreateContainer(sandbox, sim.ContainerSpec{Name: "app", Attempt: uint32(i), Annotations: padding}))
	}
	_, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	wantCode(t, err, codes.ResourceExhausted)
	stream := must(c.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{}))
	if one, two := must(stream.Recv()), must(stream.Recv()); len(one.Containers)+len(two.Containers) != 17 {
		t.Errorf("batches of %d and %d", len(one.Containers), len(two.Containers))
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("end: %v", err)
	}
}

func TestProfileWithoutEventsAndStreamingLists(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{Profile: sim.Profile{
		Name: "containerd", Version: "1.6.20", NoEvents: true, NoStreamingLists: true,
	}})
	conn := simtest.Dial(t, path)
	wantCode(t, subscribe(t, conn).end(), codes.Unimplemented)
	c := runtimeapi.NewRuntimeServiceClient(conn)
	_, err := must(c.StreamPodSandboxes(t.Context(), &runtimeapi.StreamPodSandboxesRequest{})).Recv()
	wantCode(t, err, codes.Unimplemented)
	_, err = must(c.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{})).Recv()
	wantCode(t, err, codes.Unimplemented)
	if got := rt.CallStats(sim.MethodGetContainerEvents).ByCode[codes.Unimplemented]; got != 1 {
		t.Errorf("%d calls recorded as Unimplemented, want 1", got)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]sim.Config{
		"buffer":  {SubscriberBuffer: -1},
		"batch":   {StreamBatch: -1},
		"keep":    {Keep: -1},
		"profile": {Profile: sim.Profile{NoEvents: true}},
	} {
		if _, err := sim.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
