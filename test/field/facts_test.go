package field_test

import (
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
)

// The words of the cases.
const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
	unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN

	sbReady    = runtimeapi.PodSandboxState_SANDBOX_READY
	sbNotReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY

	evCreated = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	evStarted = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	evStopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	evDeleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

// long makes an id of containerd's length of a name, so that no id is the
// beginning of another: the runtime finds by beginnings, as containerd does.
func long(name string) string { return name + strings.Repeat("_", 64-len(name)) }

// short is the name in an id.
func short(id string) string { return strings.TrimRight(id, "_") }

func podLabels(uid string) map[string]string {
	return map[string]string{
		simruntime.LabelPodUID: uid, simruntime.LabelPodName: "pod-" + uid, simruntime.LabelPodNamespace: "default",
	}
}

// sandbox puts a READY sandbox into the runtime, without an event.
func (f *field) sandbox(name, uid, ip string, edits ...func(*runtimeapi.PodSandboxStatus)) string {
	s := &runtimeapi.PodSandboxStatus{
		Id: long(name), State: sbReady, CreatedAt: time.Now().UnixNano(),
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod-" + uid, Uid: uid, Namespace: "default"},
		Labels:   podLabels(uid),
		Network:  &runtimeapi.PodSandboxNetworkStatus{Ip: ip},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{
			Network: runtimeapi.NamespaceMode_POD,
		}}},
	}
	for _, edit := range edits {
		edit(s)
	}
	f.rt.PutSandbox(s)
	return s.Id
}

// container puts a container into the runtime, without an event, in the state
// that is given, with the times that go with it.
func (f *field) container(name, sandbox, uid string, state runtimeapi.ContainerState, edits ...func(*runtimeapi.ContainerStatus)) string {
	c := containerStatus(name, uid, state)
	for _, edit := range edits {
		edit(c)
	}
	f.rt.PutContainer(sandbox, c)
	return c.Id
}

func containerStatus(name, uid string, state runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
	now := time.Now().UnixNano()
	labels := podLabels(uid)
	labels[simruntime.LabelContainerName] = name
	c := &runtimeapi.ContainerStatus{
		Id: long(name), State: state, CreatedAt: now, Labels: labels,
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: simruntime.DefaultImage}, ImageRef: simruntime.DefaultImage,
	}
	if state != created {
		c.StartedAt = now
	}
	if state == exited {
		c.FinishedAt, c.Reason = now, simruntime.ReasonCompleted
	}
	return c
}

// code gives an exited container its code.
func code(n int32) func(*runtimeapi.ContainerStatus) {
	return func(c *runtimeapi.ContainerStatus) { c.ExitCode, c.Reason = n, simruntime.ReasonError }
}

// attempt gives a container its attempt.
func attempt(n uint32) func(*runtimeapi.ContainerStatus) {
	return func(c *runtimeapi.ContainerStatus) { c.Metadata.Attempt = n }
}

// runs makes a container RUNNING, without an event.
func (f *field) runs(id string) {
	f.t.Helper()
	f.must(f.rt.EditContainer(id, func(c *runtimeapi.ContainerStatus) {
		c.State = running
		if c.StartedAt == 0 {
			c.StartedAt = time.Now().UnixNano()
		}
	}))
}

// exits makes a container EXITED, without an event.
func (f *field) exits(id string, n int32) {
	f.t.Helper()
	f.must(f.rt.EditContainer(id, func(c *runtimeapi.ContainerStatus) { exit(c, n) }))
}

func exit(c *runtimeapi.ContainerStatus, n int32) {
	c.State, c.ExitCode, c.FinishedAt, c.Reason = exited, n, time.Now().UnixNano(), simruntime.ReasonError
}

// event sends a message with what the runtime knows now: the status of the
// sandbox and of all containers in it. Edits make it say something else.
func (f *field) event(typ runtimeapi.ContainerEventType, id, sandbox string, edits ...func(*simruntime.Event)) {
	f.t.Helper()
	ev := &simruntime.Event{ContainerId: id, ContainerEventType: typ}
	truth := f.rt.Truth()
	for _, s := range truth.Sandboxes {
		if s.Id == sandbox {
			ev.PodSandboxStatus = clone(s)
		}
	}
	for _, c := range truth.Containers {
		if c.SandboxID == sandbox {
			ev.ContainersStatuses = append(ev.ContainersStatuses, clone(c.Status))
		}
	}
	ev.CreatedAt = time.Now().UnixNano()
	for _, edit := range edits {
		edit(ev)
	}
	f.knowCodes(ev.ContainersStatuses)
	f.rt.InjectEvent(ev)
}

// knowCodes notes what exit codes an event tells, so that they don't count as
// invented (G3).
func (f *field) knowCodes(all []*runtimeapi.ContainerStatus) {
	for _, c := range all {
		if c.State == exited {
			f.knowCode(c.Id, c.ExitCode)
		}
	}
}

func (f *field) knowCode(id string, n int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.codes[id] == nil {
		f.codes[id] = map[int32]bool{}
	}
	f.codes[id][n] = true
}

// with replaces the containers in an event's payload.
func with(all ...*runtimeapi.ContainerStatus) func(*simruntime.Event) {
	return func(ev *simruntime.Event) { ev.ContainersStatuses = all }
}

// bare empties an event's payload.
func bare(ev *simruntime.Event) { ev.PodSandboxStatus, ev.ContainersStatuses = nil, nil }

// drop lets containers vanish without an event.
func (f *field) drop(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		f.must(f.rt.DropContainer(id))
	}
}

// pod makes a pod with a container that runs, in the way of the CRI, with all
// its events, and returns both ids.
func (f *field) pod(name string) (sandbox, container string) {
	f.t.Helper()
	sandbox, err := f.rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: name, UID: "uid-" + name})
	f.must(err)
	return sandbox, f.run(sandbox, "app")
}

// run makes a container that runs, in the way of the CRI.
func (f *field) run(sandbox, name string) string {
	f.t.Helper()
	id, err := f.rt.CreateContainer(sandbox, simruntime.ContainerSpec{Name: name})
	f.must(err)
	f.must(f.rt.StartContainer(id))
	return id
}
