package simruntime

import (
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// listSandboxes answers a list call. A list item has neither addresses nor
// namespaces.
func (r *Runtime) listSandboxes(f *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.fullSandboxID(f.GetId())
	out := make([]*runtimeapi.PodSandbox, 0, r.sandboxes.len())
	for sb := range r.sandboxes.all {
		s := sb.status
		if id != "" && s.Id != id || f.GetState() != nil && f.GetState().GetState() != s.State ||
			!hasLabels(s.Labels, f.GetLabelSelector()) {
			continue
		}
		out = append(out, &runtimeapi.PodSandbox{
			Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt,
			Labels: s.Labels, Annotations: s.Annotations, RuntimeHandler: s.RuntimeHandler,
		})
	}
	return out
}

// listContainers answers a list call. A list item says to which sandbox it
// belongs, which a status doesn't, but nothing of its end: no exit code, no
// reason, no times but the created one.
func (r *Runtime) listContainers(f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, sandboxID := f.GetId(), r.fullSandboxID(f.GetPodSandboxId())
	if c, err := r.containers.find("container", id); err == nil {
		id = c.status.Id
	}
	out := make([]*runtimeapi.Container, 0, r.containers.len())
	for c := range r.containers.all {
		s := c.status
		if id != "" && s.Id != id || sandboxID != "" && c.sandboxID != sandboxID ||
			f.GetState() != nil && f.GetState().GetState() != s.State || !hasLabels(s.Labels, f.GetLabelSelector()) {
			continue
		}
		out = append(out, &runtimeapi.Container{
			Id: s.Id, PodSandboxId: c.sandboxID, Metadata: s.Metadata, Image: s.Image, ImageRef: s.ImageRef,
			State: s.State, CreatedAt: r.listedCreation(s), Labels: s.Labels, Annotations: s.Annotations,
		})
	}
	return out
}

// listedCreation is when a container was created by what lists say.
func (r *Runtime) listedCreation(s *runtimeapi.ContainerStatus) int64 {
	if skew := int64(r.profile.CreatedSkew); s.CreatedAt > skew {
		return s.CreatedAt - skew
	}
	return s.CreatedAt
}

func (r *Runtime) fullSandboxID(id string) string {
	if sb, err := r.sandboxes.find("sandbox", id); err == nil {
		return sb.status.Id
	}
	return id
}

// hasLabels matches as containerd does: equality only.
func hasLabels(labels, selector map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// PodSandboxStatus returns a sandbox's status, which is shared with the runtime
// and must not be changed.
func (r *Runtime) PodSandboxStatus(id string) (*runtimeapi.PodSandboxStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, err := r.sandboxes.find("sandbox", id)
	if err != nil {
		return nil, err
	}
	return sb.status, nil
}

// sandboxAnswer is the answer to PodSandboxStatus.
func (r *Runtime) sandboxAnswer(id string) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sb, err := r.sandboxes.find("sandbox", id)
	if err != nil {
		return nil, err
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: sb.status}
	if r.profile.SandboxExtras && !r.profile.silent() {
		resp.Timestamp = r.now()
		resp.ContainersStatuses = r.memberStatuses(sb.status.Id)
	}
	return resp, nil
}

// ContainerStatus returns a container's status, which is shared with the
// runtime and must not be changed.
func (r *Runtime) ContainerStatus(id string) (*runtimeapi.ContainerStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.containers.find("container", id)
	if err != nil {
		return nil, err
	}
	return c.status, nil
}

// sendBatches sends a list in messages of at least one item and at most size
// items or maxBatchBytes.
func sendBatches[T proto.Message](items []T, size int, send func([]T) error) error {
	for len(items) > 0 {
		n, bytes := 0, 0
		for n < len(items) && n < size {
			bytes += proto.Size(items[n])
			if n > 0 && bytes > maxBatchBytes {
				break
			}
			n++
		}
		if err := send(items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}
