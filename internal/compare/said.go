package compare

import (
	"strings"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	kindSandbox   = "sandbox"
	kindContainer = "container"

	// What is said of what is not there.
	saysAbsent   = "ABSENT"
	saysNotFound = "NOTFOUND"
)

// saying is what one answer says of one entity, as far as a change in it is a
// line of its own.
type saying struct {
	state                      string
	created, started, finished int64
	code                       int32
	reason                     string
}

// maxSaid bounds of how many entities it is known what was said. When that is
// forgotten, it is said once more.
const maxSaid = 100_000

// heard takes an event. Each is a line.
func (r *Recorder) heard(ev *runtimeapi.ContainerEventResponse) {
	raw := Raw{
		At: r.now(), Via: ViaEvent, ID: ev.GetContainerId(), EventAt: ev.GetCreatedAt(),
		Says: short(ev.GetContainerEventType().String(), "CONTAINER_", "_EVENT"),
	}
	if s := ev.GetPodSandboxStatus(); s != nil {
		raw.Sandbox, raw.Pod = s.GetId(), podOf(s.GetMetadata())
		if s.GetId() == raw.ID {
			raw.Kind, raw.State, raw.CreatedAt = kindSandbox, sandboxState(s.GetState()), s.GetCreatedAt()
		}
	}
	for _, c := range ev.GetContainersStatuses() {
		if c.GetId() == raw.ID {
			fillContainer(&raw, c)
			raw.State = containerState(c.GetState())
		}
	}
	r.emit(Line{Raw: &raw})
	if raw.Says == "DELETED" {
		r.mu.Lock()
		delete(r.said, raw.ID)
		if len(r.gone) >= maxSaid { // of entities that no list ever had
			clear(r.gone)
		}
		r.gone[raw.ID] = raw.At
		r.mu.Unlock()
	}
}

// answered takes the answer to a call.
func (r *Recorder) answered(c *call) {
	at := r.now()
	switch c.method {
	case "PodSandboxStatus", "ContainerStatus":
		for _, m := range c.got {
			r.status(at, m)
		}
	case "ListPodSandbox", "StreamPodSandboxes", "ListContainers", "StreamContainers":
		r.list(at, c)
	}
}

// status takes a status.
func (r *Recorder) status(at int64, m proto.Message) {
	switch m := m.(type) {
	case *runtimeapi.PodSandboxStatusResponse:
		s := m.GetStatus()
		raw := Raw{At: at, Via: ViaStatus, ID: s.GetId(), Sandbox: s.GetId(), Kind: kindSandbox, Says: sandboxState(s.GetState()),
			Pod: podOf(s.GetMetadata()), CreatedAt: s.GetCreatedAt()}
		r.say(raw)
	case *runtimeapi.ContainerStatusResponse:
		s := m.GetStatus()
		raw := Raw{At: at, Via: ViaStatus, ID: s.GetId(), Says: containerState(s.GetState())}
		fillContainer(&raw, s)
		r.say(raw)
	}
}

// list takes a complete list. What a full one lacks and the one before had is
// absent.
func (r *Recorder) list(at int64, c *call) {
	kind, ids := kindContainer, map[string]bool{}
	if strings.Contains(c.method, "Sandbox") {
		kind = kindSandbox
	}
	for _, m := range c.got {
		for _, s := range m2sandboxes(m) {
			ids[s.GetId()] = true
			r.say(Raw{At: at, Via: ViaList, ID: s.GetId(), Sandbox: s.GetId(), Kind: kindSandbox, Says: sandboxState(s.GetState()),
				Pod: podOf(s.GetMetadata()), CreatedAt: s.GetCreatedAt()})
		}
		for _, s := range m2containers(m) {
			ids[s.GetId()] = true
			r.say(Raw{At: at, Via: ViaList, ID: s.GetId(), Sandbox: s.GetPodSandboxId(), Kind: kindContainer, Says: containerState(s.GetState()),
				Name: s.GetMetadata().GetName(), Attempt: s.GetMetadata().GetAttempt(), CreatedAt: s.GetCreatedAt()})
		}
	}
	if c.about != "" { // what it lacks may only be filtered out
		return
	}
	r.mu.Lock()
	before := r.held[kind]
	r.held[kind] = ids
	var absent []string
	for id := range before {
		if !ids[id] {
			absent = append(absent, id)
			delete(r.said, id)
			delete(r.gone, id)
		}
	}
	r.mu.Unlock()
	for _, id := range absent {
		r.emit(Line{Raw: &Raw{At: at, Via: ViaList, ID: id, Kind: kind, Says: saysAbsent}})
	}
}

// m2sandboxes and m2containers return the items of any form of list.
func m2sandboxes(m proto.Message) []*runtimeapi.PodSandbox {
	switch m := m.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		return m.GetItems()
	case *runtimeapi.StreamPodSandboxesResponse:
		return m.GetPodSandboxes()
	}
	return nil
}

func m2containers(m proto.Message) []*runtimeapi.Container {
	switch m := m.(type) {
	case *runtimeapi.ListContainersResponse:
		return m.GetContainers()
	case *runtimeapi.StreamContainersResponse:
		return m.GetContainers()
	}
	return nil
}

// say makes a line of what is new.
func (r *Recorder) say(raw Raw) {
	now := saying{raw.Says, raw.CreatedAt, raw.StartedAt, raw.FinishedAt, raw.ExitCode, raw.Reason}
	r.mu.Lock()
	of := r.said[raw.ID]
	if of == nil {
		if len(r.said) >= maxSaid { // of entities whose end nobody told
			clear(r.said)
		}
		of = said{}
		r.said[raw.ID] = of
	}
	last, ok := of[raw.Via]
	of[raw.Via] = now
	// That it is still there is news again once no list from before the event is under way.
	if at := r.gone[raw.ID]; at != 0 && raw.At > at+settleTime {
		delete(r.gone, raw.ID)
		ok = false
	}
	r.mu.Unlock()
	if !ok || last != now {
		r.emit(Line{Raw: &raw})
	}
}

// notFound takes the answer of a status call that there is no such thing.
func (r *Recorder) notFound(c *call) {
	kind := kindContainer
	if c.method == "PodSandboxStatus" {
		kind = kindSandbox
	}
	r.emit(Line{Raw: &Raw{At: r.now(), Via: ViaStatus, ID: c.about, Kind: kind, Says: saysNotFound}})
}

// failed takes a call that failed.
func (r *Recorder) failed(c *call, why string) {
	r.emit(Line{Raw: &Raw{At: r.now(), Via: ViaCall, ID: c.about, Method: c.method, Says: limit(why)}})
}

// maxWhy bounds the text of an error in a line.
const maxWhy = 300

func limit(s string) string {
	if len(s) > maxWhy {
		s = strings.ToValidUTF8(s[:maxWhy], "") + "…"
	}
	return s
}

func fillContainer(raw *Raw, s *runtimeapi.ContainerStatus) {
	raw.Kind, raw.Name, raw.Attempt = kindContainer, s.GetMetadata().GetName(), s.GetMetadata().GetAttempt()
	raw.CreatedAt, raw.StartedAt, raw.FinishedAt = s.GetCreatedAt(), s.GetStartedAt(), s.GetFinishedAt()
	raw.ExitCode, raw.Reason = s.GetExitCode(), s.GetReason()
}

func podOf(m *runtimeapi.PodSandboxMetadata) Pod {
	return Pod{UID: m.GetUid(), Namespace: m.GetNamespace(), Name: m.GetName()}
}

func sandboxState(s runtimeapi.PodSandboxState) string { return short(s.String(), "SANDBOX_", "") }

func containerState(s runtimeapi.ContainerState) string { return short(s.String(), "CONTAINER_", "") }

func short(word, prefix, suffix string) string {
	return strings.TrimSuffix(strings.TrimPrefix(word, prefix), suffix)
}
