package sim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
)

// wrongState has answers, or the statuses in events, say the same wrong thing about
// one sandbox or container, often once and sometimes up to three times in a row.
func wrongState(w *world, rng *rand.Rand) (string, func()) {
	id, claim, list, status, edit := w.wrong(rng)
	if id == "" {
		return ofNothing, nil
	}
	where := pick(rng, []int{2, 1, 2, 1}, []string{"lists", "statuses", "lists and statuses", "events"})
	r := simruntime.Rule{Times: pick(rng, []int{3, 1, 2}, []int{1, 2, 3}), Edit: edit}
	if where == "events" {
		r.Method = simruntime.MethodEvent
		r.Where = func(op simruntime.Op) bool {
			return op.Event.GetPodSandboxStatus().GetId() == id || slices.ContainsFunc(op.Event.GetContainersStatuses(),
				func(c *runtimeapi.ContainerStatus) bool { return c.GetId() == id })
		}
	} else {
		r.Where = func(op simruntime.Op) bool {
			return where != "statuses" && isMethod(op.Method, list) || where != "lists" && isMethod(op.Method, status) && op.ID == id
		}
	}
	// It waits for its turn, however long that takes.
	w.endings = append(w.endings, w.rules(r))
	return fmt.Sprintf("of %s: %s, in %s, %d times", short(id), claim, where, r.Times), nil
}

// wrong chooses something that there is, and what is to be said of it: which may
// be the truth, or become it.
func (w *world) wrong(rng *rand.Rand) (id, claim, list, status string, edit func(proto.Message)) {
	if all := w.rt.Truth().Sandboxes; len(all) > 0 && rng.IntN(3) == 0 {
		id, state := all[rng.IntN(len(all))].GetId(), runtimeapi.PodSandboxState(rng.IntN(2))
		return id, state.String(), "ListPodSandbox", "PodSandboxStatus", simruntime.SandboxSays(id, state)
	}
	c := w.anyContainer(rng)
	if c == nil {
		return "", "", "", "", nil
	}
	id, state := c.Status.GetId(), runtimeapi.ContainerState(rng.IntN(4))
	return id, state.String(), "ListContainers", "ContainerStatus", simruntime.ContainerSays(id, state)
}

// anyContainer returns a container that there is, nil if there is none.
func (w *world) anyContainer(rng *rand.Rand) *simruntime.TrueContainer {
	all := w.rt.Truth().Containers
	if len(all) == 0 {
		return nil
	}
	return &all[rng.IntN(len(all))]
}

// falseEvent tells of an end that was none.
func falseEvent(w *world, rng *rand.Rand) (string, func()) {
	c := w.anyContainer(rng)
	if c == nil || c.Status.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return ofNothing, nil
	}
	ev := &simruntime.Event{
		ContainerId: c.Status.GetId(), CreatedAt: w.clock.Now().UnixNano(),
		ContainerEventType: pick(rng, []int{1, 1}, []runtimeapi.ContainerEventType{
			runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT}),
	}
	for _, s := range w.rt.Truth().Sandboxes {
		if s.GetId() == c.SandboxID {
			ev.PodSandboxStatus = s
		}
	}
	if rng.IntN(2) == 0 {
		ev.ContainersStatuses = []*runtimeapi.ContainerStatus{c.Status}
	}
	w.rt.InjectEvent(ev)
	return fmt.Sprintf("%v of %s", ev.ContainerEventType, short(c.Status.GetId())), nil
}
