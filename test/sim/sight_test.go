package sim_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
)

// rung is a step of a sandbox or container that an answer or event proves.
type rung int

const (
	rungCreated rung = 1
	rungUp      rung = 2 // started, ready
	rungDown    rung = 3 // exited, not ready
	rungCode    rung = 4 // exited, with its code
)

// source is what proved a rung.
type source string

const (
	byList   source = "list"
	byType   source = "type of an event"
	byStatus source = "status" // of a call, or in an event
)

// sighting is one thing that reached the agent.
type sighting struct {
	life *life
	at   time.Time
	by   source
	hung bool // commits waited then
}

// sightings is all that reached the agent, by id and rung: the first of each
// life, since that is the one that had the longest time to be written, and the
// first while commits waited, which may count for less.
type sightings struct {
	mu  sync.Mutex
	all map[string]map[rung][]sighting
}

func (s *sightings) add(id string, r rung, seen sighting) {
	if id == "" || seen.life.dead.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]map[rung][]sighting{}
	}
	if s.all[id] == nil {
		s.all[id] = map[rung][]sighting{}
	}
	for _, have := range s.all[id][r] {
		if have.life == seen.life && have.by == seen.by && have.hung == seen.hung {
			return
		}
	}
	s.all[id][r] = append(s.all[id][r], seen)
}

// known says whether anything was seen of an id in a life.
func (s *sightings) known(id string, in *life) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.all[id][rungCreated], func(seen sighting) bool { return seen.life == in })
}

// sight sees what reaches the agent in one life: it is the stats handler of its
// client, so an answer counts once the client has all of it.
type sight struct {
	w *world
	l *life

	mu     sync.Mutex
	halves map[string]half // lists of sandboxes whose containers are still to be listed, by their filter
}

// add notes what was seen.
func (s *sight) add(id string, r rung, by source) {
	s.w.seen.add(id, r, sighting{s.l, time.Now(), by, s.w.disk.hanging()})
}

type half struct {
	sent      time.Time
	sandboxes []*runtimeapi.PodSandbox
}

// call is one call under way.
type call struct {
	method string
	filter string
	sent   time.Time
	got    []proto.Message
}

// lists is when the full lists were sent and answered that succeeded.
type lists struct {
	mu  sync.Mutex
	all []list
}

type list struct {
	life           *life
	sent, answered time.Time
}

// listed says whether a full list was sent after one time and answered before
// another.
func (l *lists) listed(in *life, after, before time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.all {
		if x.life == in && x.sent.After(after) && x.answered.Before(before) {
			return true
		}
	}
	return false
}

type callKey struct{}

// TagRPC implements [stats.Handler].
func (s *sight) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, callKey{}, &call{method: info.FullMethodName[strings.LastIndexByte(info.FullMethodName, '/')+1:]})
}

// HandleRPC implements [stats.Handler].
func (s *sight) HandleRPC(ctx context.Context, st stats.RPCStats) {
	c, _ := ctx.Value(callKey{}).(*call)
	switch st := st.(type) {
	case *stats.OutPayload:
		c.filter, c.sent = filterOf(st.Payload), time.Now()
	case *stats.InPayload:
		if ev := cri.EventOf(st.Payload); ev != nil {
			s.w.count("events seen", 1)
			s.event(ev)
		} else if m, ok := st.Payload.(proto.Message); ok {
			c.got = append(c.got, m)
		}
	case *stats.End:
		if st.Error == nil {
			s.answer(c)
		}
	}
}

// TagConn implements [stats.Handler].
func (s *sight) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (s *sight) HandleConn(context.Context, stats.ConnStats) {}

// filterOf tells lists apart: one of everything, and those of one pod.
func filterOf(m any) string {
	switch m := m.(type) {
	case interface {
		GetFilter() *runtimeapi.PodSandboxFilter
	}:
		return m.GetFilter().GetId() + m.GetFilter().GetLabelSelector()["io.kubernetes.pod.uid"]
	case interface {
		GetFilter() *runtimeapi.ContainerFilter
	}:
		return m.GetFilter().GetPodSandboxId() + m.GetFilter().GetLabelSelector()["io.kubernetes.pod.uid"]
	}
	return ""
}

// answer takes a call that succeeded.
func (s *sight) answer(c *call) {
	switch c.method {
	case "ListPodSandbox", "StreamPodSandboxes":
		var all []*runtimeapi.PodSandbox
		for _, m := range c.got {
			switch m := m.(type) {
			case *runtimeapi.ListPodSandboxResponse:
				all = append(all, m.Items...)
			case *runtimeapi.StreamPodSandboxesResponse:
				all = append(all, m.PodSandboxes...)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.halves == nil {
			s.halves = map[string]half{}
		}
		s.halves[c.filter] = half{c.sent, all}
	case "ListContainers", "StreamContainers":
		// Only both together are a list.
		s.mu.Lock()
		first, ok := s.halves[c.filter]
		delete(s.halves, c.filter)
		s.mu.Unlock()
		if ok && c.filter == "" {
			s.w.sights.mu.Lock()
			s.w.sights.all = append(s.w.sights.all, list{s.l, first.sent, time.Now()})
			s.w.sights.mu.Unlock()
		}
		for _, sb := range first.sandboxes {
			s.sandbox(sb.GetId(), sb.GetState(), byList)
		}
		for _, m := range c.got {
			switch m := m.(type) {
			case *runtimeapi.ListContainersResponse:
				s.listed(m.Containers)
			case *runtimeapi.StreamContainersResponse:
				s.listed(m.Containers)
			}
		}
	default:
		for _, m := range c.got {
			switch m := m.(type) {
			case *runtimeapi.PodSandboxStatusResponse:
				s.sandbox(m.GetStatus().GetId(), m.GetStatus().GetState(), byStatus)
			case *runtimeapi.ContainerStatusResponse:
				s.container(m.GetStatus())
			}
		}
	}
}

// event takes an event: what its type proves, and its statuses.
func (s *sight) event(ev *runtimeapi.ContainerEventResponse) {
	if sb := ev.GetPodSandboxStatus(); sb != nil {
		s.sandbox(sb.GetId(), sb.GetState(), byStatus)
	}
	for _, c := range ev.GetContainersStatuses() {
		s.container(c)
	}
	if ev.GetPodSandboxStatus() == nil && !s.w.seen.known(ev.GetContainerId(), s.l) {
		return // it doesn't even tell what it is of, so it is only asked about (O5)
	}
	s.add(ev.GetContainerId(), rungCreated, byType)
	switch ev.GetContainerEventType() {
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		s.add(ev.GetContainerId(), rungUp, byType)
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		if ev.GetContainerId() != ev.GetPodSandboxStatus().GetId() {
			s.add(ev.GetContainerId(), rungUp, byType)
		}
	}
}

func (s *sight) sandbox(id string, state runtimeapi.PodSandboxState, by source) {
	s.add(id, rungCreated, by)
	if state == runtimeapi.PodSandboxState_SANDBOX_READY {
		s.add(id, rungUp, by)
	} else {
		s.add(id, rungDown, by)
	}
}

func (s *sight) listed(all []*runtimeapi.Container) {
	for _, c := range all {
		s.add(c.GetId(), rungCreated, byList)
		switch c.GetState() {
		case runtimeapi.ContainerState_CONTAINER_RUNNING:
			s.add(c.GetId(), rungUp, byList)
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			s.add(c.GetId(), rungDown, byList)
		}
	}
}

func (s *sight) container(c *runtimeapi.ContainerStatus) {
	s.add(c.GetId(), rungCreated, byStatus)
	if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING || c.GetStartedAt() > 0 {
		s.add(c.GetId(), rungUp, byStatus)
	}
	if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
		s.add(c.GetId(), rungDown, byStatus)
		if c.GetFinishedAt() > 0 {
			s.add(c.GetId(), rungCode, byStatus)
		}
	}
}
