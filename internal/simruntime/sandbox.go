package simruntime

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	sandboxReady    = runtimeapi.PodSandboxState_SANDBOX_READY
	sandboxNotReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
)

// removedCreatedAt is the created time of a sandbox in its own DELETED event.
// containerd has by then forgotten the sandbox's process and sends Go's zero
// time in nanoseconds, -6795364578871345152.
var removedCreatedAt = time.Time{}.UnixNano()

// RunPodSandbox makes a pod's sandbox. At its end come CREATED and STARTED back
// to back, both with the sandbox's address and no containers. It returns the
// sandbox's id.
func (r *Runtime) RunPodSandbox(spec PodSpec) (string, error) {
	return r.runSandbox(spec.Config(), spec.RuntimeHandler)
}

func (r *Runtime) runSandbox(cfg *runtimeapi.PodSandboxConfig, handler string) (id string, err error) {
	err = r.changeUp(true, func() error {
		sb, err := r.newSandbox(cfg, handler)
		if err != nil {
			return err
		}
		id = sb.status.Id
		r.recordSandbox(sb, Created)
		r.recordSandbox(sb, Ready)
		if !r.profile.QuietSandboxes {
			r.emit(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, id, id)
		}
		r.emit(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, id, id)
		return nil
	})
	return id, err
}

// newSandbox adds a sandbox that is READY.
func (r *Runtime) newSandbox(cfg *runtimeapi.PodSandboxConfig, handler string) (*sandbox, error) {
	meta := cfg.GetMetadata()
	if meta == nil {
		return nil, errors.New("sandbox config: no metadata")
	}
	if cfg.GetHostname() != "" && cfg.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		return nil, errors.New("sandbox config: runc create failed: unable to set hostname without a private UTS namespace")
	}
	id := newID(r.ids)
	name := strings.Join([]string{"sandbox", meta.Name, meta.Namespace, meta.Uid, uitoa(meta.Attempt)}, "_")
	if err := r.reserve(name, id); err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	options := cfg.GetLinux().GetSecurityContext().GetNamespaceOptions()
	network := &runtimeapi.PodSandboxNetworkStatus{}
	if options.GetNetwork() != runtimeapi.NamespaceMode_NODE {
		r.pods++
		ips := podIPs(r.pods, r.cfg.DualStack)
		network.Ip = ips[0]
		for _, ip := range ips[1:] {
			network.AdditionalIps = append(network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
		}
	}
	sb := &sandbox{name: name, status: &runtimeapi.PodSandboxStatus{
		Id:             id,
		Metadata:       meta,
		State:          sandboxReady,
		CreatedAt:      r.now(),
		Network:        network,
		Linux:          &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: options}},
		Labels:         cfg.GetLabels(),
		Annotations:    cfg.GetAnnotations(),
		RuntimeHandler: handler,
	}}
	r.sandboxes.add(id, sb)
	return sb, nil
}

// StopPodSandbox stops a pod's containers and then its sandbox, which becomes
// NOTREADY and loses its address. As in CRI, stopping what is stopped or
// doesn't exist is no error.
func (r *Runtime) StopPodSandbox(id string) error {
	return r.changeUp(false, func() error {
		sb, err := r.sandboxes.find("sandbox", id)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		r.stopSandbox(sb, false)
		return nil
	})
}

func (r *Runtime) stopSandbox(sb *sandbox, force bool) {
	for _, c := range slices.Clone(r.members[sb.status.Id]) {
		r.stopContainer(c, force)
	}
	r.endSandbox(sb, true)
}

// endSandbox turns a sandbox NOTREADY. Its address goes with its network
// namespace, which only StopPodSandbox takes down.
func (r *Runtime) endSandbox(sb *sandbox, teardown bool) {
	next := proto.CloneOf(sb.status)
	if teardown && !r.profile.KeepsIP {
		next.Network = &runtimeapi.PodSandboxNetworkStatus{}
	}
	wasReady := next.State == sandboxReady
	next.State = sandboxNotReady
	sb.status = next
	if wasReady {
		r.recordSandbox(sb, NotReady)
		r.emit(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, next.Id, next.Id)
	}
}

// ExitSandbox lets the sandbox's own (pause) process die: NOTREADY and a
// STOPPED event. Its containers go on, and its address stays until
// StopPodSandbox tears the network down. It may be called while the runtime is
// down; then there is no event.
func (r *Runtime) ExitSandbox(id string) error {
	return r.change(false, func() error {
		sb, err := r.sandboxes.find("sandbox", id)
		if err != nil {
			return err
		}
		if sb.status.State != sandboxReady {
			return fmt.Errorf("sandbox %s is %s: %w", sb.status.Id, sb.status.State, ErrState)
		}
		r.endSandbox(sb, false)
		return nil
	})
}

// RemovePodSandbox stops a pod by force, removes its containers and then its
// sandbox, each with its events. The DELETED of the sandbox still carries a
// status: NOTREADY, without address, created at Go's zero time. Removing what
// doesn't exist is no error.
func (r *Runtime) RemovePodSandbox(id string) error {
	return r.changeUp(true, func() error {
		sb, err := r.sandboxes.find("sandbox", id)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		r.stopSandbox(sb, true)
		for _, c := range slices.Clone(r.members[sb.status.Id]) {
			r.removeContainer(c, r.profile.QuietPodRemoval)
		}
		r.recordSandbox(sb, Removed)
		last := proto.CloneOf(sb.status)
		last.CreatedAt = removedCreatedAt
		sb.status = last
		if !r.profile.QuietSandboxes {
			r.emit(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, last.Id, last.Id)
		}
		r.forgetSandbox(sb)
		return nil
	})
}

func (r *Runtime) forgetSandbox(sb *sandbox) {
	r.sandboxes.remove(sb.status.Id)
	delete(r.names, sb.name)
}
