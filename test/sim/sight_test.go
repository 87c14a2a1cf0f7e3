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
	"github.com/plegd/plegd/internal/simruntime"
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

// sightings is all that reached the agent and is true, by id and rung.
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
	s.all[id][r] = append(s.all[id][r], seen)
}

// shown returns when lists and statuses showed an entity.
func (s *sightings) shown(id string) (all []sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seen := range s.all[id][rungCreated] {
		if seen.by != byType {
			all = append(all, seen)
		}
	}
	return all
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
	halves map[filter]half // lists of sandboxes whose containers are still to be listed, by their filter
}

// add notes what was seen.
func (s *sight) add(id string, r rung, by source) {
	s.w.seen.add(id, r, sighting{s.l, time.Now(), by, s.w.disk.hanging()})
}

type half struct {
	sent, answered time.Time
	sandboxes      []*runtimeapi.PodSandbox
}

// call is one call under way.
type call struct {
	method string
	filter filter
	of     string // the id of a status call
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
		c.filter, c.sent, c.of = filterOf(st.Payload), time.Now(), idOf(st.Payload)
		s.w.calls.sent(s.l, c)
	case *stats.InPayload:
		if ev := cri.EventOf(st.Payload); ev != nil {
			s.w.count("events seen", 1)
			s.event(ev)
		} else if m, ok := st.Payload.(proto.Message); ok {
			c.got = append(c.got, m)
		}
	case *stats.End:
		s.w.calls.ended(c, st.Error)
		if st.Error == nil {
			s.answer(c)
		}
	}
}

// TagConn implements [stats.Handler].
func (s *sight) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (s *sight) HandleConn(context.Context, stats.ConnStats) {}

// filter is what a list is of: one of everything is the zero filter.
type filter struct{ sandbox, pod string }

func filterOf(m any) filter {
	switch m := m.(type) {
	case interface {
		GetFilter() *runtimeapi.PodSandboxFilter
	}:
		return filter{m.GetFilter().GetId(), m.GetFilter().GetLabelSelector()[simruntime.LabelPodUID]}
	case interface {
		GetFilter() *runtimeapi.ContainerFilter
	}:
		return filter{m.GetFilter().GetPodSandboxId(), m.GetFilter().GetLabelSelector()[simruntime.LabelPodUID]}
	}
	return filter{}
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
			s.halves = map[filter]half{}
		}
		s.halves[c.filter] = half{c.sent, time.Now(), all}
	case "ListContainers", "StreamContainers":
		// Only both together are a list.
		s.mu.Lock()
		first, ok := s.halves[c.filter]
		delete(s.halves, c.filter)
		s.mu.Unlock()
		if ok {
			s.list(c, first)
		}
	default:
		for _, m := range c.got {
			switch m := m.(type) {
			case *runtimeapi.PodSandboxStatusResponse:
				s.sandbox(m.GetStatus().GetId(), m.GetStatus().GetState(), byStatus, c.sent)
				s.detail(m.GetStatus())
			case *runtimeapi.ContainerStatusResponse:
				s.container(m.GetStatus(), c.sent)
			}
		}
	}
}

// list takes a whole list.
func (s *sight) list(c *call, first half) {
	if c.filter == (filter{}) {
		s.w.lists.mu.Lock()
		s.w.lists.all = append(s.w.lists.all, list{s.l, first.sent, time.Now()})
		s.w.lists.mu.Unlock()
	}
	has := map[string]bool{}
	for _, sb := range first.sandboxes {
		has[sb.GetId()] = true
		s.sandbox(sb.GetId(), sb.GetState(), byList, first.sent)
	}
	s.lacks(s.w.past.all(simruntime.Sandbox, c.filter), has, first.sent, first.answered)
	for _, m := range c.got {
		var all []*runtimeapi.Container
		switch m := m.(type) {
		case *runtimeapi.ListContainersResponse:
			all = m.Containers
		case *runtimeapi.StreamContainersResponse:
			all = m.Containers
		}
		for _, it := range all {
			has[it.GetId()] = true
			s.places(it.GetId(), byList)
			s.add(it.GetId(), rungCreated, byList)
			if s.hear(it.GetId(), it.GetState().String(), byList, c.sent) {
				s.shows(it.GetId(), it.GetState(), byList)
			}
		}
	}
	s.lacks(s.w.past.all(simruntime.Container, c.filter), has, c.sent, time.Now())
}

// event takes an event: what its type proves, and its statuses.
func (s *sight) event(ev *runtimeapi.ContainerEventResponse) {
	if sb := ev.GetPodSandboxStatus(); sb != nil {
		s.sandbox(sb.GetId(), sb.GetState(), byStatus, time.Time{})
		s.detail(sb)
	}
	for _, c := range ev.GetContainersStatuses() {
		s.container(c, time.Time{})
		if ev.GetPodSandboxStatus() != nil && c.GetId() == ev.GetContainerId() { // CRI-O sends those of other sandboxes, too
			s.places(c.GetId(), byStatus)
		}
	}
	id, kind := ev.GetContainerId(), ev.GetContainerEventType()
	s.w.details.names(id, ev.GetCreatedAt())
	done := map[runtimeapi.ContainerEventType][]simruntime.Step{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT: {simruntime.Created},
		runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT: {simruntime.Started, simruntime.Ready},
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT: {simruntime.Exited, simruntime.NotReady},
		runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT: {simruntime.Removed},
	}[kind]
	claim := kind.String()
	if kind == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		claim = gone
	}
	if !s.l.dead.Load() {
		s.note(id, said{life: s.l, at: time.Now(), by: byType, claim: claim, lie: !s.w.past.did(id, time.Now(), done...)})
	}
	if ev.GetPodSandboxStatus() == nil && !s.w.seen.known(id, s.l) {
		return // it doesn't even tell what it is of, so it is only asked about (O5)
	}
	s.add(id, rungCreated, byType)
	switch kind {
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		s.add(id, rungUp, byType)
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		if id != ev.GetPodSandboxStatus().GetId() {
			s.add(id, rungUp, byType)
		}
	}
}

func (s *sight) sandbox(id string, state runtimeapi.PodSandboxState, by source, sent time.Time) {
	s.add(id, rungCreated, by)
	switch {
	case !s.hear(id, state.String(), by, sent):
	case state == runtimeapi.PodSandboxState_SANDBOX_READY:
		s.add(id, rungUp, by)
	default:
		s.add(id, rungDown, by)
	}
}

// shows takes a container's state that is true.
func (s *sight) shows(id string, state runtimeapi.ContainerState, by source) {
	switch state {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		s.add(id, rungUp, by)
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		s.add(id, rungDown, by)
	}
}

func (s *sight) container(c *runtimeapi.ContainerStatus, sent time.Time) {
	s.add(c.GetId(), rungCreated, byStatus)
	if c.GetStartedAt() > 0 {
		s.add(c.GetId(), rungUp, byStatus)
	}
	if !s.hear(c.GetId(), c.GetState().String(), byStatus, sent) {
		return
	}
	s.shows(c.GetId(), c.GetState(), byStatus)
	if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && c.GetFinishedAt() > 0 {
		s.add(c.GetId(), rungCode, byStatus)
	}
}
