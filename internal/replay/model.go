package replay

import (
	"cmp"
	"maps"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// model is what is known of the runtime at one moment: what it answered last, corrected
// by what came since. An answer replaces what was known when it was asked for. What came
// between its asking and its coming is older or newer than it, nobody knows: then what is
// further on in its life holds, since lives go one way. The same is so of an event, whose
// payload was read at any time before.
type model struct {
	sandboxes  map[string]*sandbox
	containers map[string]*container
	gone       map[string]int64 // when ids were found to be gone, of the last goneFor
}

// goneFor is how long an answer or event may lag behind the end of what it is about, ns:
// containerd 2.x repeats events of five minutes to a new subscriber.
const goneFor = int64(6 * 60 * 1e9)

// entity is what is known of a sandbox or container.
type entity[State ~int32, Item, Status comparable] struct {
	at     int64 // when the newest of it came
	state  State
	item   Item   // as listed, nil before it was
	status Status // as answered, or told by an event; nil before that
}

type sandbox struct {
	entity[runtimeapi.PodSandboxState, *runtimeapi.PodSandbox, *runtimeapi.PodSandboxStatusResponse]
}

type container struct {
	entity[runtimeapi.ContainerState, *runtimeapi.Container, *runtimeapi.ContainerStatusResponse]

	sandbox string // "" if that is not known
}

// is takes what a witness says: an item, or a status, or both nil.
func (e *entity[State, Item, Status]) is(state State, item Item, status Status, w witness) {
	if w.sent <= e.at && rank(state) < rank(e.state) { // it may be from before
		return
	}
	e.at, e.state = max(e.at, w.at), state
	e.item, e.status = cmp.Or(item, e.item), cmp.Or(status, e.status)
}

// rank is how far on in its life something is. UNKNOWN, which only a container can be, says
// nothing.
func rank[State ~int32](s State) int {
	if int32(s) == int32(runtimeapi.ContainerState_CONTAINER_UNKNOWN) {
		return -1
	}
	return int(s)
}

func newModel() model {
	return model{sandboxes: map[string]*sandbox{}, containers: map[string]*container{}, gone: map[string]int64{}}
}

// witness is when something was asked for, and when it came.
type witness struct{ sent, at int64 }

// told is a witness that was not asked for.
func told(at int64) witness { return witness{-1, at} }

// knows reports whether a witness may speak of an id: of what is gone only one from after
// that.
func (m *model) knows(id string, w witness) bool {
	at, gone := m.gone[id]
	if gone && w.sent <= at {
		return false
	}
	delete(m.gone, id)
	return id != ""
}

// sandboxIs takes what a witness says of a sandbox; see entity.is.
func (m *model) sandboxIs(id string, state runtimeapi.PodSandboxState, item *runtimeapi.PodSandbox, status *runtimeapi.PodSandboxStatusResponse, w witness) {
	if !m.knows(id, w) {
		return
	}
	s := m.sandboxes[id]
	if s == nil {
		s = &sandbox{}
		s.at, s.state = -1, state
		m.sandboxes[id] = s
	}
	s.is(state, item, status, w)
}

// containerIs takes what a witness says of a container, and of the sandbox that it is in,
// "" for nothing.
func (m *model) containerIs(id, in string, state runtimeapi.ContainerState, item *runtimeapi.Container, status *runtimeapi.ContainerStatusResponse, w witness) {
	if !m.knows(id, w) {
		return
	}
	c := m.containers[id]
	if c == nil {
		c = &container{}
		c.at, c.state = -1, state
		m.containers[id] = c
	}
	c.sandbox = cmp.Or(in, c.sandbox)
	c.is(state, item, status, w)
}

// sandboxGone takes the end of a sandbox, and so of what is in it.
func (m *model) sandboxGone(id string, at int64) {
	delete(m.sandboxes, id)
	m.gone[id] = at
	for cid, c := range m.containers {
		if c.sandbox == id {
			m.containerGone(cid, at)
		}
	}
}

func (m *model) containerGone(id string, at int64) {
	delete(m.containers, id)
	m.gone[id] = at
}

// sandboxesAre takes a list of all sandboxes that are in a scope. What it lacks is gone,
// unless something came of it after the list was asked for.
func (m *model) sandboxesAre(items []*runtimeapi.PodSandbox, in func(*sandbox) bool, w witness) {
	listed := make(map[string]bool, len(items))
	for _, item := range items {
		listed[item.GetId()] = true
		m.sandboxIs(item.GetId(), item.GetState(), item, nil, w)
	}
	for id, s := range m.sandboxes {
		if !listed[id] && s.at < w.sent && in(s) {
			m.sandboxGone(id, w.at)
		}
	}
	maps.DeleteFunc(m.gone, func(_ string, at int64) bool { return at < w.at-goneFor })
}

// containersAre is sandboxesAre for containers.
func (m *model) containersAre(items []*runtimeapi.Container, in func(*container) bool, w witness) {
	listed := make(map[string]bool, len(items))
	for _, item := range items {
		listed[item.GetId()] = true
		m.containerIs(item.GetId(), item.GetPodSandboxId(), item.GetState(), item, nil, w)
	}
	for id, c := range m.containers {
		if !listed[id] && c.at < w.sent && in(c) {
			m.containerGone(id, w.at)
		}
	}
}

// event takes an event.
func (m *model) event(ev *runtimeapi.ContainerEventResponse, at int64) {
	w, id := told(at), ev.GetContainerId()
	said := false // the payload says something of the id itself
	box := ev.GetPodSandboxStatus()
	if box.GetId() != "" {
		m.sandboxIs(box.GetId(), box.GetState(), nil, &runtimeapi.PodSandboxStatusResponse{Status: box}, w)
		said = box.GetId() == id
	}
	for _, c := range ev.GetContainersStatuses() {
		m.containerIs(c.GetId(), box.GetId(), c.GetState(), nil, &runtimeapi.ContainerStatusResponse{Status: c}, w)
		said = said || c.GetId() == id
	}
	s, c := m.sandboxes[id], m.containers[id]
	switch typ := ev.GetContainerEventType(); {
	case typ == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT && c != nil:
		m.containerGone(id, at)
	case typ == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		m.sandboxGone(id, at)
	case said:
	case typ == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT && c != nil:
		m.containerIs(id, "", runtimeapi.ContainerState_CONTAINER_EXITED, nil, nil, w)
	case typ == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT && s != nil:
		m.sandboxIs(id, runtimeapi.PodSandboxState_SANDBOX_NOTREADY, nil, nil, w)
	case typ == runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT && c != nil:
		m.containerIs(id, "", runtimeapi.ContainerState_CONTAINER_RUNNING, nil, nil, w)
	}
}
