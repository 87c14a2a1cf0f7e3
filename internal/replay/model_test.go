package replay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// state is all that a model would answer, in short.
func (m *model) state() string {
	var parts []string
	for _, s := range m.listSandboxes(nil) {
		parts = append(parts, s.GetId()+"="+s.GetState().String()[len("SANDBOX_"):])
	}
	for _, c := range m.listContainers(nil) {
		parts = append(parts, c.GetId()+"@"+c.GetPodSandboxId()+"="+c.GetState().String()[len("CONTAINER_"):])
	}
	return strings.Join(parts, " ")
}

// step is one thing that a model is told.
type step func(*model)

func listed(sent, at int64, items ...*runtimeapi.Container) step {
	return func(m *model) {
		m.containersAre(items, func(*container) bool { return true }, witness{sent, at})
	}
}

func listedIn(box string, sent, at int64, items ...*runtimeapi.Container) step {
	return func(m *model) {
		m.containersAre(items, func(c *container) bool { return c.sandbox == box }, witness{sent, at})
	}
}

func listedBoxes(sent, at int64, ids ...string) step {
	return func(m *model) {
		m.sandboxesAre(boxes(ids...).GetItems(), func(*sandbox) bool { return true }, witness{sent, at})
	}
}

func happened(at int64, typ runtimeapi.ContainerEventType, id string, box *runtimeapi.PodSandboxStatus, statuses ...*runtimeapi.ContainerStatus) step {
	return func(m *model) {
		m.event(&runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: typ, PodSandboxStatus: box, ContainersStatuses: statuses}, at)
	}
}

// An answer replaces what was known when it was asked for; of what may be older or newer
// what is further on holds.
func TestModel(t *testing.T) {
	const (
		created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
		started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
		stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
		unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		made    = runtimeapi.ContainerState_CONTAINER_CREATED
	)
	box := func(s runtimeapi.PodSandboxState) *runtimeapi.PodSandboxStatus {
		return &runtimeapi.PodSandboxStatus{Id: "s", State: s}
	}
	ready, notReady := box(runtimeapi.PodSandboxState_SANDBOX_READY), box(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)
	is := func(state runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
		return statusOf("c", state, 0).GetStatus()
	}
	c := func(state runtimeapi.ContainerState) *runtimeapi.Container { return item("c", "s", state) }
	for name, tc := range map[string]struct {
		steps []step
		want  string
	}{
		"a list":                               {[]step{listedBoxes(1, 2, "s", "t"), listed(1, 2, c(running))}, "s=READY t=READY c@s=RUNNING"},
		"a later list lacks it":                {[]step{listedBoxes(1, 2, "s", "t"), listed(1, 2, c(running)), listedBoxes(3, 4, "t"), listed(3, 4)}, "t=READY"},
		"a later list has an earlier state":    {[]step{listed(1, 2, c(exited)), listed(3, 4, c(running))}, "c@s=RUNNING"},
		"an event, then an older list":         {[]step{listed(1, 2, c(running)), happened(5, stopped, "c", nil), listed(4, 6, c(running))}, "c@s=EXITED"},
		"an event, then a newer list":          {[]step{listed(1, 2, c(running)), happened(5, stopped, "c", nil), listed(6, 7, c(running))}, "c@s=RUNNING"},
		"a late event":                         {[]step{listed(1, 2, c(exited)), happened(5, started, "c", ready, is(running))}, "s=READY c@s=EXITED"},
		"what only an event has shown":         {[]step{happened(1, created, "c", ready, is(made))}, "s=READY c@s=CREATED"},
		"an event has shown it, an older list": {[]step{happened(5, created, "c", ready, is(made)), listed(4, 6), listedBoxes(4, 6)}, "s=READY c@s=CREATED"},
		"an event has shown it, a newer list":  {[]step{happened(5, created, "c", ready, is(made)), listed(6, 7), listedBoxes(6, 7)}, ""},
		"an event of an id that nothing shows": {[]step{happened(5, started, "c", nil)}, ""},
		"deleted":                              {[]step{listed(1, 2, c(exited)), happened(5, deleted, "c", notReady)}, "s=NOTREADY"},
		"deleted, with itself in the payload":  {[]step{listed(1, 2, c(exited)), happened(5, deleted, "c", notReady, is(exited))}, "s=NOTREADY"},
		"deleted, then an older list":          {[]step{listed(1, 2, c(exited)), happened(5, deleted, "c", nil), listed(4, 6, c(exited))}, ""},
		"deleted, then a newer list":           {[]step{listed(1, 2, c(exited)), happened(5, deleted, "c", nil), listed(6, 7, c(exited))}, "c@s=EXITED"},
		"deleted, then an event":               {[]step{listed(1, 2, c(exited)), happened(5, deleted, "c", nil), happened(6, stopped, "c", nil, is(exited))}, ""},
		"the sandbox deleted":                  {[]step{listedBoxes(1, 2, "s", "t"), listed(1, 2, c(exited), item("d", "t", running)), happened(5, deleted, "s", nil)}, "t=READY d@t=RUNNING"},
		"the sandbox stopped, without payload": {[]step{listedBoxes(1, 2, "s"), happened(5, stopped, "s", nil)}, "s=NOTREADY"},
		"started, without payload":             {[]step{listed(1, 2, c(made)), happened(5, started, "c", nil)}, "c@s=RUNNING"},
		"a payload that says another thing":    {[]step{listed(1, 2, c(running)), happened(5, stopped, "c", ready, is(running))}, "s=READY c@s=RUNNING"},
		"a list of one sandbox":                {[]step{listed(1, 2, c(running), item("d", "t", running)), listedIn("s", 3, 4)}, "d@t=RUNNING"},
		"unknown says nothing":                 {[]step{listed(1, 2, c(running)), happened(5, started, "c", nil, is(unknown))}, "c@s=RUNNING"},
		"unknown, then an older answer":        {[]step{listed(3, 4, c(unknown)), listed(1, 5, c(running))}, "c@s=RUNNING"},
		"an item without an id":                {[]step{listed(1, 2, item("", "s", running))}, ""},
	} {
		m := newModel()
		for _, step := range tc.steps {
			step(&m)
		}
		if got := m.state(); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// Statuses and items are made of each other where one is not known, and have the state
// that is known.
func TestModelFillsIn(t *testing.T) {
	m := newModel()
	m.containersAre([]*runtimeapi.Container{{Id: "c", PodSandboxId: "s", Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: 2}, CreatedAt: 7, ImageRef: "i"}},
		func(*container) bool { return true }, witness{1, 2})
	m.event(&runtimeapi.ContainerEventResponse{ContainerId: "c", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT}, 3)
	st := m.containers["c"].answer().GetStatus()
	if st.GetId() != "c" || st.GetMetadata().GetName() != "app" || st.GetState() != running || st.GetCreatedAt() != 7 || st.GetImageRef() != "i" {
		t.Errorf("status %v", st)
	}
	m.containerIs("c", "", running, nil, &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: "c", State: running, StartedAt: 8}}, witness{4, 5})
	m.containerIs("c", "s", exited, item("c", "s", exited), nil, witness{6, 7})
	c := m.containers["c"]
	if st := c.answer().GetStatus(); st.GetState() != exited || st.GetStartedAt() != 8 || !c.stale() {
		t.Errorf("status %v, stale %v", st, c.stale())
	}
	m.sandboxIs("s", runtimeapi.PodSandboxState_SANDBOX_NOTREADY, &runtimeapi.PodSandbox{Id: "s", CreatedAt: 9, Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}}, nil, witness{1, 2})
	if st := m.sandboxes["s"].answer().GetStatus(); st.GetId() != "s" || st.GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || st.GetCreatedAt() != 9 || st.GetMetadata().GetUid() != "u" {
		t.Errorf("sandbox %v", st)
	}
}

// What is gone is forgotten in time: a recording of weeks must not fill the memory.
func TestModelForgetsTheGone(t *testing.T) {
	m := newModel()
	for i := range int64(5) {
		m.containerGone(fmt.Sprint("c", i), i*goneFor/2)
	}
	m.sandboxesAre(nil, nil, witness{0, 2*goneFor + 1})
	if got := slices.Sorted(maps.Keys(m.gone)); !slices.Equal(got, []string{"c3", "c4"}) {
		t.Errorf("gone: %v", got)
	}
}
