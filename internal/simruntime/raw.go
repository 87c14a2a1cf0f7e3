package simruntime

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// EditContainer changes a container's status to anything, without an event:
// states outside the enum, times from another age, a reason that comes late
// (containerd#12714), a resize. Its id must stay. Works while down.
func (r *Runtime) EditContainer(id string, edit func(*runtimeapi.ContainerStatus)) error {
	return r.change(false, func() error {
		c, err := r.containers.find("container", id)
		if err != nil {
			return err
		}
		next := proto.CloneOf(c.status)
		edit(next)
		if next.Id != c.status.Id {
			return fmt.Errorf("container %s: an edit changed its id: %w", c.status.Id, ErrState)
		}
		c.status = next
		r.recordContainer(c, Edited)
		return nil
	})
}

// SetContainerState is EditContainer for the state alone.
func (r *Runtime) SetContainerState(id string, state runtimeapi.ContainerState) error {
	return r.EditContainer(id, func(s *runtimeapi.ContainerStatus) { s.State = state })
}

// EditSandbox changes a sandbox's status to anything, without an event.
func (r *Runtime) EditSandbox(id string, edit func(*runtimeapi.PodSandboxStatus)) error {
	return r.change(false, func() error {
		sb, err := r.sandboxes.find("sandbox", id)
		if err != nil {
			return err
		}
		next := proto.CloneOf(sb.status)
		edit(next)
		if next.Id != sb.status.Id {
			return fmt.Errorf("sandbox %s: an edit changed its id: %w", sb.status.Id, ErrState)
		}
		sb.status = next
		r.recordSandbox(sb, Edited)
		return nil
	})
}

// SetSandboxState is EditSandbox for the state alone.
func (r *Runtime) SetSandboxState(id string, state runtimeapi.PodSandboxState) error {
	return r.EditSandbox(id, func(s *runtimeapi.PodSandboxStatus) { s.State = state })
}

// PutSandbox adds a sandbox with exactly this status, or replaces the one of
// its id, without an event.
func (r *Runtime) PutSandbox(status *runtimeapi.PodSandboxStatus) {
	_ = r.change(false, func() error {
		sb, ok := r.sandboxes.byID[status.GetId()]
		if ok {
			sb.value.status = proto.CloneOf(status)
			r.recordSandbox(sb.value, Edited)
			return nil
		}
		added := &sandbox{status: proto.CloneOf(status)}
		r.sandboxes.add(status.GetId(), added)
		r.recordSandbox(added, Edited)
		return nil
	})
}

// PutContainer adds a container with exactly this status to a sandbox that need
// not exist, or replaces the one of its id, without an event.
func (r *Runtime) PutContainer(sandboxID string, status *runtimeapi.ContainerStatus) {
	_ = r.change(false, func() error {
		c := &container{sandboxID: sandboxID, stopCode: CodeTerminated}
		if old, ok := r.containers.byID[status.GetId()]; ok {
			c.name, c.failStart, c.stopCode = old.value.name, old.value.failStart, old.value.stopCode
			r.unlinkContainer(old.value)
		}
		c.status = proto.CloneOf(status)
		r.containers.add(status.GetId(), c)
		r.members[sandboxID] = append(r.members[sandboxID], c)
		r.recordContainer(c, Edited)
		return nil
	})
}

// DropContainer makes a container vanish without an event. Works while down.
func (r *Runtime) DropContainer(id string) error {
	return r.change(false, func() error {
		c, err := r.containers.find("container", id)
		if err != nil {
			return err
		}
		r.forgetContainer(c)
		r.addContainer(c, Removed, true)
		return nil
	})
}

// DropSandbox makes a sandbox vanish without an event and leaves its containers
// where they are, as orphans. Works while down.
func (r *Runtime) DropSandbox(id string) error {
	return r.change(false, func() error {
		sb, err := r.sandboxes.find("sandbox", id)
		if err != nil {
			return err
		}
		r.addSandbox(sb, Removed, true)
		r.forgetSandbox(sb)
		return nil
	})
}
