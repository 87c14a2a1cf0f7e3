package criserver

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

const (
	created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

// subscribe opens an event stream, on a connection of its own, and waits until
// it is open.
func (n *node) subscribe() grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse] {
	n.t.Helper()
	conn := dial(n.t, n.server.cfg.Socket)
	stream, err := runtimeapi.NewRuntimeServiceClient(conn).GetContainerEvents(n.ctx(), &runtimeapi.GetEventsRequest{})
	n.must(err)
	_, err = stream.Header()
	n.must(err)
	return stream
}

// Every client is told of every event, once and in order, with what the cache
// has; and the runtime is not asked for it.
func TestEventsForMany(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.quiet()
	var clients []grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]
	for range 10 {
		clients = append(clients, n.subscribe())
	}
	if subscribers := n.rt.CallStats("GetContainerEvents").Started; subscribers != 1 {
		t.Errorf("the runtime has %d subscribers", subscribers)
	}
	statuses := func() int {
		return n.rt.CallStats("PodSandboxStatus").Started + n.rt.CallStats("ContainerStatus").Started
	}
	before := statuses()
	sandbox, container := n.pod("a")
	n.must(n.rt.ExitContainer(container, 3, "Error"))
	n.must(n.rt.RemoveContainer(container))
	n.must(n.rt.StopPodSandbox(sandbox))
	n.must(n.rt.RemovePodSandbox(sandbox))
	for i, c := range clients {
		types := map[string][]runtimeapi.ContainerEventType{}
		for range 8 {
			ev, err := c.Recv()
			n.must(err)
			id := ev.GetContainerId()
			types[id] = append(types[id], ev.GetContainerEventType())
			if ev.GetCreatedAt() == 0 {
				t.Errorf("no time: %v", ev)
			}
			if s := ev.GetPodSandboxStatus(); s != nil && s.GetId() != sandbox {
				t.Errorf("sandbox %s", s.GetId())
			}
			if id != container || len(ev.GetContainersStatuses()) == 0 {
				continue
			}
			st := ev.GetContainersStatuses()[0]
			if ev.GetContainerEventType() == stopped && (st.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || st.GetExitCode() != 3 || st.GetReason() != "Error") {
				t.Errorf("stopped: %v", st)
			}
		}
		want := []runtimeapi.ContainerEventType{created, started, stopped, deleted}
		if !slices.Equal(types[sandbox], want) || !slices.Equal(types[container], want) {
			t.Errorf("client %d: %v", i, types)
		}
	}
	if more := statuses() - before; more > 4 { // plegd's own questions
		t.Errorf("%d status calls for 10 clients", more)
	}
}

// The payload of a start has the whole status of the pod.
func TestEventPayload(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.quiet()
	c := n.subscribe()
	sandbox, container := n.pod("a")
	for {
		ev, err := c.Recv()
		n.must(err)
		if ev.GetContainerId() != container || ev.GetContainerEventType() != started {
			continue
		}
		s, err := n.rt.PodSandboxStatus(sandbox)
		n.must(err)
		st, err := n.rt.ContainerStatus(container)
		n.must(err)
		same(t, "sandbox", s, ev.GetPodSandboxStatus(), nil)
		same(t, "containers", []*runtimeapi.ContainerStatus{st}, ev.GetContainersStatuses(), nil)
		return
	}
}

// A client that doesn't read is cut, and costs nobody else an event.
func TestSlowClientIsCut(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.quiet()
	const pods, each = 4, 8 // in a batch, and events of a pod
	n.server.hub.room = 3 * pods * each
	slow, quick := n.subscribe(), n.subscribe()
	told := make(chan int)
	var count atomic.Int64
	go func() {
		for {
			if _, err := quick.Recv(); err != nil {
				told <- int(count.Load())
				return
			}
			count.Add(1)
		}
	}()
	readers := func() int {
		n.server.hub.mu.Lock()
		defer n.server.hub.mu.Unlock()
		return len(n.server.hub.readers)
	}
	batches := 0
	for ; readers() == 2; batches++ {
		if batches*pods*each > 20*maxBehind {
			t.Fatalf("not cut after %d events", batches*pods*each)
		}
		for i := range pods {
			sandbox, _ := n.pod(fmt.Sprint("p", batches, "-", i))
			n.must(n.rt.RemovePodSandbox(sandbox))
		}
		eventually(t, "the quick one has been told", func() error {
			if got, want := count.Load(), int64((batches+1)*pods*each); got < want {
				return fmt.Errorf("%d of %d events", got, want)
			}
			return nil
		})
	}
	if batches*pods*each < n.server.hub.room {
		t.Errorf("cut after %d events", batches*pods*each)
	}
	var err error
	received := 0
	for err == nil {
		if _, err = slow.Recv(); err == nil {
			received++
		}
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "events behind") {
		t.Errorf("after %d events: %v", received, err)
	}
	n.stop()
	if got := <-told; got != batches*pods*each {
		t.Errorf("the other was told %d of %d events", got, batches*pods*each)
	}
}

// The number of streams is bounded, and one that ends makes room.
func TestStreamsAreBounded(t *testing.T) {
	h := newHub()
	h.open()
	var readers []*reader
	for range maxReaders {
		r, err := h.join(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	if _, err := h.join(t.Context()); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	h.leave(readers[7])
	if _, err := h.join(t.Context()); err != nil {
		t.Error(err)
	}
	h.close(errStopping, errStopping)
	h.leave(readers[8])
	if _, err := h.join(t.Context()); status.Code(err) != codes.Unavailable || h.reading() > 0 {
		t.Error(err)
	}
	if <-readers[0].cut; readers[0].why != errStopping { //nolint:errorlint // it is that very one
		t.Error(readers[0].why)
	}
}

// The endpoint ends at once, however many read, wait or don't read.
func TestStopWithClients(t *testing.T) {
	n := start(t, simruntime.Config{})
	_, container := n.pod("a")
	n.quiet()
	simtest.Rule(t, n.rt, simruntime.Rule{Method: "Status", Hang: true, IgnoreCancel: true})
	var ends []<-chan error
	for range 3 {
		c := n.subscribe()
		ends = append(ends, endOf(func() error {
			for {
				if _, err := c.Recv(); err != nil {
					return err
				}
			}
		}))
	}
	for range 3 {
		ends = append(ends, endOf(func() error {
			_, err := n.cri.Status(t.Context(), &runtimeapi.StatusRequest{})
			return err
		}))
	}
	n.subscribe() // and doesn't read
	n.must(n.rt.WaitCalls(t.Context(), "Status", func(s simruntime.CallStats) bool { return s.InFlight > 0 }))
	_, err := n.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: container})
	n.must(err)
	n.stop()
	for _, end := range ends {
		if err := <-end; status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	}
	if _, err := n.cri.Version(t.Context(), nil); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	next, err := New(n.server.cfg) // the socket is free again
	n.must(err)
	n.must(next.Close())
}

func endOf(f func() error) <-chan error {
	end := make(chan error, 1)
	go func() { end <- f() }()
	return end
}

// When the generator ends, streams end, and say so.
func TestGeneratorEnds(t *testing.T) {
	_, socket := startRecorder(t)
	cfg := Config{Socket: t.TempDir() + "/s", Untrusted: ReadThrough}
	cfg.Source = func() (Source, string, error) { return empty{}, socket, nil }
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	inBackground(t, s.Run)
	conn := dial(t, cfg.Socket)
	eventually(t, "the end is told", func() error {
		err := callAny(t, conn, runtimeapi.RuntimeService_GetContainerEvents_FullMethodName)
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "stops") {
			return fmt.Errorf("%w", err)
		}
		return nil
	})
}

func TestEventTypes(t *testing.T) {
	changed := func(typ store.EventType, change store.Change, state string) *pleg.Event {
		return &pleg.Event{Type: typ, Change: change, State: state}
	}
	for _, tc := range []struct {
		ev   *pleg.Event
		want runtimeapi.ContainerEventType
		ok   bool
	}{
		{&pleg.Event{Type: store.SandboxCreated}, created, true},
		{&pleg.Event{Type: store.ContainerCreated}, created, true},
		{&pleg.Event{Type: store.SandboxReady}, started, true},
		{&pleg.Event{Type: store.ContainerStarted}, started, true},
		{&pleg.Event{Type: store.SandboxNotReady}, stopped, true},
		{&pleg.Event{Type: store.ContainerDied}, stopped, true},
		{&pleg.Event{Type: store.SandboxRemoved}, deleted, true},
		{&pleg.Event{Type: store.ContainerRemoved}, deleted, true},
		{changed(store.ContainerChanged, store.ChangeAmended, "exited"), stopped, true},
		{changed(store.ContainerChanged, store.ChangeRegressed, "running"), started, true},
		{changed(store.ContainerChanged, store.ChangeRegressed, "created"), created, true},
		{changed(store.SandboxChanged, store.ChangeAmended, "ready"), started, true},
		{changed(store.SandboxChanged, store.ChangeRegressed, "ready"), started, true},
		{changed(store.SandboxChanged, store.ChangeAmended, "notready"), stopped, true},
		{changed(store.ContainerChanged, store.ChangeAmended, "removed"), 0, false},
		{changed(store.ContainerChanged, store.ChangeUnknown, "unknown"), 0, false},
		{changed(store.ContainerChanged, store.ChangeAmended, "ready"), 0, false},
		{&pleg.Event{Type: store.SequenceSkipped}, 0, false},
	} {
		if got, ok := eventType(tc.ev); got != tc.want || ok != tc.ok {
			t.Errorf("%s %s %s: %v, %v", tc.ev.Type, tc.ev.Change, tc.ev.State, got, ok)
		}
	}
}

// What a stream takes is given back when its client goes away.
func TestClientsThatLeave(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.pod("a") // so that the endpoint has its connection to the runtime
	n.quiet()
	before := runtime.NumGoroutine()
	for range 20 {
		conn := dial(t, n.server.cfg.Socket)
		stream, err := runtimeapi.NewRuntimeServiceClient(conn).GetContainerEvents(n.ctx(), &runtimeapi.GetEventsRequest{})
		n.must(err)
		_, err = stream.Header()
		n.must(err)
		n.must(conn.Close())
	}
	n.pod("b")
	eventually(t, "they are gone", func() error {
		if n.server.hub.reading() > 0 {
			return errors.New("streams are open")
		}
		if now := runtime.NumGoroutine(); now > before+5 {
			return fmt.Errorf("%d goroutines, %d before", now, before)
		}
		return nil
	})
}

// podOf is a source that knows one pod.
type podOf struct {
	empty
	sandboxes, containers []pleg.Entity
}

func (p podOf) EntitiesOf(key string) (sandboxes, containers []pleg.Entity) {
	if key != "u" {
		return nil, nil
	}
	return p.sandboxes, p.containers
}

// An event tells of its own sandbox, and leaves out what is in doubt.
func TestEventTellsOfItsSandbox(t *testing.T) {
	entity := func(kind store.Kind, id, sandbox string, state int32, rest proto.Message) pleg.Entity {
		b, err := proto.Marshal(rest)
		if err != nil {
			t.Fatal(err)
		}
		r := &store.Record{Kind: kind, ID: id, Sandbox: sandbox, Reported: state, Rest: string(b)}
		r.Evidence.Rest.State, r.Evidence.Reported.State = store.StateUp, store.StateUp
		return pleg.Entity{Record: r}
	}
	sandbox := func(id string) pleg.Entity {
		return entity(store.KindSandbox, id, id, 0, &runtimeapi.PodSandboxStatus{Id: id})
	}
	container := func(id, of string) pleg.Entity {
		return entity(store.KindContainer, id, of, 1, &runtimeapi.ContainerStatus{Id: id})
	}
	pod := podOf{
		sandboxes:  []pleg.Entity{sandbox("new"), sandbox("old")},
		containers: []pleg.Entity{container("a", "new"), container("b", "old"), container("c", "new"), container("d", "new"), container("e", "new")},
	}
	pod.containers[2].Restored = true
	pod.containers[3].Asked = store.ReasonContradict
	pod.containers[4].Asked = store.ReasonExit137 // its status may change, and is what there is
	ids := func(ev *runtimeapi.ContainerEventResponse) (ids string) {
		ids = ev.GetPodSandboxStatus().GetId() + ":"
		for _, c := range ev.GetContainersStatuses() {
			ids += c.GetId()
		}
		return ids
	}
	event := func(uid, sandbox string) *pleg.Event {
		return &pleg.Event{Type: store.SandboxReady, Pod: store.EventPod{UID: uid}, SandboxID: sandbox, ObservedAt: 7}
	}
	for want, ev := range map[string]*pleg.Event{"new:ae": event("u", "new"), "old:b": event("u", "old"), ":": event("other", "new")} {
		got := tell(pod, ev)
		if ids(got) != want || got.GetCreatedAt() != 7 || got.GetContainerId() != ev.SandboxID || got.GetContainerEventType() != started {
			t.Errorf("%v, want %q", got, want)
		}
	}
	if got := tell(pod, &pleg.Event{Type: store.SequenceSkipped}); got != nil {
		t.Error(got)
	}
}
