package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// crictl's events on the endpoint tell what those on the runtime's own socket tell, in the same order for each
// sandbox and container.
func TestCRIEndpointEvents(t *testing.T) {
	t.Parallel()
	c := watchCRI(t, containerd2)
	theirs, ours := followEvents(t, c.rt.socket), followEvents(t, c.socket)
	c.awaitSubscribed(t, theirs, ours)
	p := c.rt.runPod(t, "events")
	id := p.run(t, "main", 0, "exit", "9", "300ms")
	c.rt.exited(t, id)
	c.rt.removeContainer(t, id)
	p.stop(t)
	p.remove(t)
	for _, entity := range []string{id, p.sandbox} {
		eventually(t, settle, "crictl tells the whole life", func() error {
			want, got := theirs.types(entity), ours.types(entity)
			if !slices.Equal(want, got) || len(want) < 4 {
				return fmt.Errorf("%s: %v, want %v", entity, got, want)
			}
			return nil
		})
	}
	for what, e := range map[string]*eventLog{"runtime": theirs, "plegd": ours} {
		stopped := e.find(id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
		if len(stopped.GetContainersStatuses()) != 1 || stopped.GetContainersStatuses()[0].GetExitCode() != 9 ||
			stopped.GetPodSandboxStatus().GetNetwork().GetIp() != p.ip || stopped.GetCreatedAt() == 0 {
			t.Errorf("%s: stopped: %v", what, stopped)
		}
	}
	a := theirs.find(id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	b := ours.find(id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	if d := cmp.Diff(a, b, protocmp.Transform(), protocmp.IgnoreFields(a, "created_at")); d != "" {
		t.Errorf("started: %s", d)
	}
}

// On containerd 1.7 subscribers get each event once between them. Those of the endpoint get all, and take none
// away, since plegd finds changes by relists there.
func TestCRIEndpointEventsForTwo(t *testing.T) {
	t.Parallel()
	c := watchCRI(t, containerd17)
	one, two := followEvents(t, c.socket), followEvents(t, c.socket)
	c.awaitSubscribed(t, one, two)
	p := c.rt.runPod(t, "two")
	id := p.run(t, "main", 0, "exit", "9", "300ms")
	want := []runtimeapi.ContainerEventType{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
	}
	for _, l := range []*eventLog{one, two} {
		eventually(t, settle, "crictl tells of the container", func() error {
			if got := l.types(id); !slices.Equal(got, want) {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
		if died := l.find(id, want[2]); died.GetContainersStatuses()[0].GetExitCode() != 9 {
			t.Errorf("stopped: %v", died)
		}
	}
	if n := count(c.proxy.since(0))["GetContainerEvents"]; n > 0 {
		t.Errorf("the runtime has had %d subscribers", n)
	}
}

// awaitSubscribed makes pods until all logs have an event: crictl doesn't say that it has subscribed.
func (c *criClients) awaitSubscribed(t *testing.T, logs ...*eventLog) {
	t.Helper()
	tries := 0
	eventually(t, settle, "all have subscribed", func() error {
		c.rt.runPod(t, fmt.Sprintf("warm-%d", tries))
		tries++
		for _, l := range logs {
			if n, bad := l.state(); n == 0 || bad != nil {
				return fmt.Errorf("%d events, %w", n, bad)
			}
		}
		return nil
	})
}

// eventLog is what crictl events has printed.
type eventLog struct {
	mu     sync.Mutex
	events []*runtimeapi.ContainerEventResponse
	bad    error // what was no event
}

// followEvents runs crictl events until the end of the test.
func followEvents(t *testing.T, socket string) *eventLog {
	t.Helper()
	log := new(eventLog)
	cmd := crictlCommand(socket, "events", "-o", "json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for values := json.NewDecoder(out); ; {
			var raw json.RawMessage
			if values.Decode(&raw) != nil {
				return
			}
			log.add(raw)
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	return log
}

func (l *eventLog) add(raw []byte) {
	ev := new(runtimeapi.ContainerEventResponse)
	err := protojson.Unmarshal(raw, ev)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events, l.bad = append(l.events, ev), errors.Join(l.bad, err)
}

func (l *eventLog) state() (events int, bad error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events), l.bad
}

func (l *eventLog) types(id string) (types []runtimeapi.ContainerEventType) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.GetContainerId() == id {
			types = append(types, e.GetContainerEventType())
		}
	}
	return types
}

func (l *eventLog) find(id string, kind runtimeapi.ContainerEventType) *runtimeapi.ContainerEventResponse {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.GetContainerId() == id && e.GetContainerEventType() == kind {
			return e
		}
	}
	return nil
}
