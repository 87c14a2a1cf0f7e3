package replay

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listed returns the sandbox as a list has it, nil if too little is known for that.
func (s *sandbox) listed() *runtimeapi.PodSandbox {
	if s.item != nil {
		return inState(s.item, s.state)
	}
	st := s.status.GetStatus()
	if st == nil {
		return nil
	}
	return &runtimeapi.PodSandbox{
		Id: st.GetId(), Metadata: st.GetMetadata(), State: s.state, CreatedAt: st.GetCreatedAt(), Labels: st.GetLabels(),
		Annotations: st.GetAnnotations(), RuntimeHandler: st.GetRuntimeHandler(),
	}
}

// listed is that of a sandbox.
func (c *container) listed() *runtimeapi.Container {
	if c.item != nil {
		return inState(c.item, c.state)
	}
	st := c.status.GetStatus()
	if st == nil || c.sandbox == "" {
		return nil
	}
	return &runtimeapi.Container{
		Id: st.GetId(), PodSandboxId: c.sandbox, Metadata: st.GetMetadata(), Image: st.GetImage(), ImageRef: st.GetImageRef(), ImageId: st.GetImageId(),
		State: c.state, CreatedAt: st.GetCreatedAt(), Labels: st.GetLabels(), Annotations: st.GetAnnotations(),
	}
}

// message is one of the CRI's that has a state.
type message[State ~int32] interface {
	comparable
	proto.Message
	GetState() State
}

// inState returns a message with a state, a copy where it has another.
func inState[State ~int32, M message[State]](m M, state State) M {
	if m.GetState() == state {
		return m
	}
	m = proto.CloneOf(m)
	r := m.ProtoReflect()
	r.Set(r.Descriptor().Fields().ByName("state"), protoreflect.ValueOfEnum(protoreflect.EnumNumber(state)))
	return m
}

// stale reports whether the status that is known is from before the state.
func (s *sandbox) stale() bool { return s.status == nil || s.status.GetStatus().GetState() != s.state }

func (c *container) stale() bool {
	return c.status == nil || c.status.GetStatus().GetState() != c.state
}

// answer returns the sandbox's status.
func (s *sandbox) answer() *runtimeapi.PodSandboxStatusResponse {
	if !s.stale() {
		return s.status
	}
	if s.status != nil {
		out := proto.CloneOf(s.status)
		out.Status.State = s.state
		return out
	}
	i := s.item
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: i.GetId(), Metadata: i.GetMetadata(), State: s.state, CreatedAt: i.GetCreatedAt(), Labels: i.GetLabels(),
		Annotations: i.GetAnnotations(), RuntimeHandler: i.GetRuntimeHandler(),
	}}
}

// answer returns the container's status.
func (c *container) answer() *runtimeapi.ContainerStatusResponse {
	if !c.stale() {
		return c.status
	}
	if c.status != nil {
		out := proto.CloneOf(c.status)
		out.Status.State = c.state
		return out
	}
	i := c.item
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{
		Id: i.GetId(), Metadata: i.GetMetadata(), State: c.state, CreatedAt: i.GetCreatedAt(), Image: i.GetImage(), ImageRef: i.GetImageRef(),
		ImageId: i.GetImageId(), Labels: i.GetLabels(), Annotations: i.GetAnnotations(),
	}}
}

// listSandboxes answers a list.
func (m *model) listSandboxes(f *runtimeapi.PodSandboxFilter) (items []*runtimeapi.PodSandbox) {
	for _, id := range slices.Sorted(maps.Keys(m.sandboxes)) {
		item := m.sandboxes[id].listed()
		if item == nil || f.GetId() != "" && f.GetId() != id || f.GetState() != nil && f.GetState().GetState() != item.GetState() || !labelled(item.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		items = append(items, item)
	}
	return items
}

// listContainers answers a list.
func (m *model) listContainers(f *runtimeapi.ContainerFilter) (items []*runtimeapi.Container) {
	for _, id := range slices.Sorted(maps.Keys(m.containers)) {
		c := m.containers[id]
		item := c.listed()
		if item == nil || f.GetId() != "" && f.GetId() != id || f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox ||
			f.GetState() != nil && f.GetState().GetState() != item.GetState() || !labelled(item.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		items = append(items, item)
	}
	return items
}

// labelled reports whether labels are as a selector wants them.
func labelled(labels, selector map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
