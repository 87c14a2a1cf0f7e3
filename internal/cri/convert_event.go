package cri

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/timestamps"
)

// Event converts a message of the event stream that was received at this
// stamp. dropped counts the statuses in it without a usable id. Its time is
// passed on as received; its type too, whatever number it is.
//
// A container's status names no sandbox. Here the message's sandbox is filled
// in where it is certain to be the container's own: for the container that the
// event is about, and for those without the pod's UID in their labels, which a
// runtime can only have found by their sandbox. For the others it stays empty:
// CRI-O puts the containers of all the pod's sandboxes into one message.
func Event(e *runtimeapi.ContainerEventResponse, at timestamps.Stamp) (event *arbiter.EventSeen, dropped int) {
	id, _ := validID(e.GetContainerId())
	event = &arbiter.EventSeen{
		At:        at,
		Type:      arbiter.EventKind(e.GetContainerEventType()),
		ID:        id,
		CreatedAt: e.GetCreatedAt(),
	}
	if s := e.GetPodSandboxStatus(); s != nil { // nil where the runtime could not look it up (containerd#8007)
		if event.Sandbox = SandboxStatus(s); event.Sandbox == nil {
			dropped++
		}
	}
	if n := len(e.GetContainersStatuses()); n > 0 {
		event.Containers = make([]arbiter.Item, 0, n)
	}
	for _, c := range e.GetContainersStatuses() {
		item := ContainerStatus(c)
		if item == nil {
			dropped++
			continue
		}
		if event.Sandbox != nil && (item.ID == id || item.Identity.Pod.UID == "") {
			item.Sandbox = event.Sandbox.ID
		}
		event.Containers = append(event.Containers, *item)
	}
	return event, dropped
}
