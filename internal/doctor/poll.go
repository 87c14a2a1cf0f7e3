package doctor

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
)

const (
	// roundEvery is how often both lists are asked for: as often as a kubelet does.
	roundEvery = time.Second
	// maxStatuses bounds the statuses that are asked for in one round, maxFacts the
	// transitions that are kept.
	maxStatuses, maxFacts = 200, 100_000
)

// entity is what is known of a sandbox or container.
type entity struct {
	sandbox        bool
	stopped        bool      // exited, or not ready
	toldOf         [4]bool   // facts, by type
	since          time.Time // it is new, or has changed, since after this list; zero: nothing is to be asked of it
	absent         int       // rounds in a row
	absentSince    time.Time
	absentNotSince time.Time
}

// poller lists what there is, as a kubelet does, and so finds out what happens
// without being told.
type poller struct {
	client *cri.Client
	parts  *inParts
	known  map[string]*entity
	rounds int
	last   time.Time // the last round that was complete was begun then

	facts    []Fact
	lists    []List
	calls    []Call
	statuses int
	clipped  bool
}

func newPoller(client *cri.Client, parts *inParts) *poller {
	return &poller{client: client, parts: parts, known: map[string]*entity{}}
}

// run lists until ctx ends.
func (p *poller) run(ctx context.Context) {
	ticker := time.NewTicker(roundEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		p.round(ctx)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// item is an entry of a list.
type item struct {
	id              string
	sandbox         bool
	running, exited bool
	createdAt       int64
}

// round asks for both lists, and for the statuses of what has changed.
func (p *poller) round(ctx context.Context) {
	asked := time.Now()
	items, list, err := p.list(ctx)
	if err != nil {
		return // it is among the calls that failed
	}
	answered := time.Now()
	list.At, list.Took = answered, answered.Sub(asked)
	p.lists = append(p.lists, list)
	present := make(map[string]bool, len(items))
	asks := 0
	for _, it := range items {
		present[it.id] = true
		e := p.known[it.id]
		isNew := e == nil
		if isNew {
			e = &entity{sandbox: it.sandbox}
			p.known[it.id] = e
		}
		e.absent = 0
		if p.rounds == 0 { // it was there before
			e.stopped, e.toldOf = it.exited, before(it)
			continue
		}
		if e.since.IsZero() {
			if !isNew && (!it.running || e.toldOf[started]) && it.exited == e.stopped {
				continue
			}
			e.since = p.last
		}
		if asks++; asks > maxStatuses {
			p.clipped = true
			continue // in the next round
		}
		p.look(ctx, it, e, answered)
	}
	for id, e := range p.known {
		if !present[id] {
			p.missed(id, e, asked)
		}
	}
	p.rounds++
	p.last = asked
}

const (
	created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

// before is what has happened to something that was there at first.
func before(it item) (told [4]bool) {
	told[created] = true
	told[started] = it.running || it.exited || it.sandbox
	told[stopped] = it.exited
	return told
}

// look asks for the status of something that is new or has changed.
func (p *poller) look(ctx context.Context, it item, e *entity, seen time.Time) {
	p.statuses++
	var startedAt, finishedAt int64
	var err error
	if it.sandbox {
		_, err = p.client.PodSandboxStatus(ctx, it.id)
		startedAt = it.createdAt // it has no other time
	} else {
		var c *runtimeapi.ContainerStatus
		if c, err = p.client.ContainerStatus(ctx, it.id); err == nil {
			startedAt, finishedAt = c.GetStartedAt(), c.GetFinishedAt()
			it.exited = c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
			it.running = c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
		}
	}
	if err != nil {
		if !cri.NotFound(err) { // it may have gone since
			p.failed(ctx, "status", err)
		}
		return
	}
	p.fact(it.id, e, created, it.createdAt, seen)
	// A container that could not be started has no start, and nobody tells of it.
	if it.sandbox || startedAt > 0 {
		if it.running || it.exited {
			p.fact(it.id, e, started, startedAt, seen)
		}
		if it.exited {
			p.fact(it.id, e, stopped, finishedAt, seen)
		}
	}
	e.stopped, e.since = it.exited, time.Time{}
}

// missed notes that something was in neither list. Once may be a mistake of the
// runtime, such as an empty list after its restart.
func (p *poller) missed(id string, e *entity, asked time.Time) {
	if e.absent++; e.absent == 1 {
		e.absentSince, e.absentNotSince = asked, p.last
		return
	}
	if !e.toldOf[stopped] && e.toldOf[started] {
		since := e.absentNotSince
		if !e.since.IsZero() { // its status, which failed, may have said so before
			since = e.since
		}
		p.factSince(id, e, stopped, 0, since, e.absentSince)
	}
	p.factSince(id, e, deleted, 0, e.absentNotSince, e.absentSince)
	delete(p.known, id)
}

func (p *poller) fact(id string, e *entity, kind runtimeapi.ContainerEventType, at int64, seen time.Time) {
	p.factSince(id, e, kind, at, e.since, seen)
}

func (p *poller) factSince(id string, e *entity, kind runtimeapi.ContainerEventType, at int64, since, seen time.Time) {
	if e.toldOf[kind] {
		return
	}
	e.toldOf[kind] = true
	if len(p.facts) == maxFacts {
		p.clipped = true
		return
	}
	p.facts = append(p.facts, Fact{ID: id, Sandbox: e.sandbox, Type: kind, At: at, Since: since, Seen: seen})
}

// list asks for both lists.
func (p *poller) list(ctx context.Context) (items []item, list List, err error) {
	sandboxes, err := p.client.ListPodSandbox(ctx, nil)
	if err != nil {
		p.failed(ctx, "ListPodSandbox", err)
		return nil, list, err
	}
	containers, err := p.client.ListContainers(ctx, nil)
	if err != nil {
		p.failed(ctx, "ListContainers", err)
		return nil, list, err
	}
	list.Sandboxes, list.Containers, list.Streamed = len(sandboxes), len(containers), p.parts.Load()
	list.Bytes = max(
		proto.Size(&runtimeapi.ListPodSandboxResponse{Items: sandboxes}),
		proto.Size(&runtimeapi.ListContainersResponse{Containers: containers}))
	for _, s := range sandboxes {
		ready := s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
		items = append(items, item{id: s.GetId(), sandbox: true, running: ready, exited: !ready, createdAt: s.GetCreatedAt()})
	}
	for _, c := range containers {
		items = append(items, item{
			id: c.GetId(), createdAt: c.GetCreatedAt(),
			running: c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING,
			exited:  c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED,
		})
	}
	return items, list, nil
}

// failed keeps a call that failed, unless it was called off; of many the first ones.
func (p *poller) failed(ctx context.Context, method string, err error) {
	if len(p.calls) < maxFacts && ctx.Err() == nil {
		p.calls = append(p.calls, Call{method, err})
	}
}

// inParts notes whether lists come in parts: the client uses that form where the
// runtime has it.
type inParts struct{ atomic.Bool }

// CallStarted implements cri.Observer.
func (*inParts) CallStarted(string) {}

// CallDone implements cri.Observer.
func (p *inParts) CallDone(method string, code codes.Code, _ time.Duration) {
	if method == "StreamContainers" {
		p.Store(code == codes.OK)
	}
}
