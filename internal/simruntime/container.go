package simruntime

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	containerCreated = runtimeapi.ContainerState_CONTAINER_CREATED
	containerRunning = runtimeapi.ContainerState_CONTAINER_RUNNING
	containerExited  = runtimeapi.ContainerState_CONTAINER_EXITED
	containerUnknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

// Exit codes and reasons that the runtime itself gives.
const (
	CodeStartFailed = 128 // of a container whose start failed
	CodeKilled      = 137 // of one that got SIGKILL
	CodeTerminated  = 143 // of one that ended on SIGTERM, unless its spec says otherwise

	codeUnread = 255 // of one whose own code the runtime couldn't read

	ReasonCompleted   = "Completed"
	ReasonError       = "Error"
	ReasonOOMKilled   = "OOMKilled"
	ReasonStartFailed = "StartError"
)

// CreateContainer makes a container in a sandbox, which must be READY, and
// returns its id.
func (r *Runtime) CreateContainer(sandboxID string, spec ContainerSpec) (string, error) {
	r.mu.Lock()
	var pod *runtimeapi.PodSandboxMetadata
	if sb, err := r.sandboxes.find("sandbox", sandboxID); err == nil {
		pod = sb.status.Metadata
	}
	r.mu.Unlock()
	return r.createContainer(sandboxID, spec.Config(pod), spec.StopCode)
}

func (r *Runtime) createContainer(sandboxID string, cfg *runtimeapi.ContainerConfig, stopCode int32) (id string, err error) {
	err = r.changeUp(true, func() error {
		sb, err := r.sandboxes.find("sandbox", sandboxID)
		if err != nil {
			return err
		}
		if sb.status.State != sandboxReady {
			return fmt.Errorf("sandbox %s is %s: %w", sb.status.Id, sb.status.State, ErrState)
		}
		c, err := r.newContainer(sb, cfg, stopCode)
		if err != nil {
			return err
		}
		id = c.status.Id
		r.recordContainer(c, Created)
		r.emit(runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, id, c.sandboxID)
		return nil
	})
	return id, err
}

// newContainer adds a container that is CREATED.
func (r *Runtime) newContainer(sb *sandbox, cfg *runtimeapi.ContainerConfig, stopCode int32) (*container, error) {
	meta, pod := cfg.GetMetadata(), sb.status.GetMetadata()
	if meta == nil {
		return nil, errors.New("container config: no metadata")
	}
	exits, err := exitAtOnce(cfg)
	if err != nil {
		return nil, err
	}
	failStart := cfg.GetAnnotations()[AnnotationFailStart]
	if failStart != "" && r.profile.ForgetsFailedStarts {
		return nil, fmt.Errorf("container %s: %s: %w", meta.Name, failStart, ErrStartFailed)
	}
	id := newID(r.ids)
	name := strings.Join([]string{"container", meta.Name, pod.GetName(), pod.GetNamespace(), pod.GetUid(), uitoa(meta.Attempt)}, "_")
	if err := r.reserve(name, id); err != nil {
		return nil, fmt.Errorf("container: %w", err)
	}
	if stopCode == 0 {
		stopCode = CodeTerminated
	}
	image := imageID(cfg.GetImage().GetImage())
	ref := image
	if r.profile.RepoDigests {
		ref = repoDigest(cfg.GetImage().GetImage())
	}
	c := &container{
		sandboxID: sb.status.Id, name: name, stopCode: stopCode, failStart: failStart, exits: exits,
		status: &runtimeapi.ContainerStatus{
			Id:          id,
			Metadata:    meta,
			State:       containerCreated,
			CreatedAt:   r.now(),
			Image:       cfg.GetImage(),
			ImageRef:    ref,
			ImageId:     image,
			Labels:      cfg.GetLabels(),
			Annotations: cfg.GetAnnotations(),
			Mounts:      cfg.GetMounts(),
			LogPath:     cfg.GetLogPath(),
			Resources:   &runtimeapi.ContainerResources{Linux: cfg.GetLinux().GetResources()},
			User:        &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{}},
			StopSignal:  runtimeapi.Signal_SIGNAL_SIGTERM,
		},
	}
	r.containers.add(id, c)
	r.members[c.sandboxID] = append(r.members[c.sandboxID], c)
	return c, nil
}

func exitAtOnce(cfg *runtimeapi.ContainerConfig) (*int32, error) {
	text, ok := cfg.GetAnnotations()[AnnotationExitAtOnce]
	if !ok {
		return nil, nil
	}
	code, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("annotation %s %q: must be an exit code", AnnotationExitAtOnce, text)
	}
	return new(int32(code)), nil
}

// StartContainer starts a created container. If it was made to fail, or its
// sandbox is no longer READY, the container is EXITED with code 128 afterwards
// and neither STARTED nor STOPPED is sent: containerd sets that status on its
// error path, after the last place that makes an event. With
// Profile.ForgetsFailedStarts it is removed instead, as quietly.
func (r *Runtime) StartContainer(id string) error {
	return r.changeUp(true, func() error {
		c, err := r.containers.find("container", id)
		if err != nil {
			return err
		}
		if c.status.State != containerCreated {
			return fmt.Errorf("container %s is %s: %w", c.status.Id, c.status.State, ErrState)
		}
		next := proto.CloneOf(c.status)
		c.status = next
		failure := c.failStart
		if sb, err := r.sandboxes.find("sandbox", c.sandboxID); err != nil || sb.status.State != sandboxReady {
			failure = "sandbox container is not running"
		}
		if failure != "" {
			next.State = containerExited
			next.FinishedAt = r.now()
			next.ExitCode = CodeStartFailed
			next.Reason = ReasonStartFailed
			next.Message = failure
			r.recordContainer(c, StartFailed)
			if r.profile.ForgetsFailedStarts {
				r.forgetContainer(c)
				r.addContainer(c, Removed, true)
			}
			return fmt.Errorf("container %s: %s: %w", next.Id, failure, ErrStartFailed)
		}
		next.State = containerRunning
		next.StartedAt = r.now()
		r.recordContainer(c, Started)
		r.tellStart(c)
		return nil
	})
}

// tellStart sends STARTED. A container that exits at once does so before, after
// or meanwhile, as the profile has it.
func (r *Runtime) tellStart(c *container) {
	started := func() {
		r.emit(runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.status.Id, c.sandboxID)
	}
	if c.exits == nil {
		started()
		return
	}
	order, lost := r.habits.Float64(), r.habits.Float64()
	stopped := func() {
		truth := c.status
		if lost < r.profile.Exit255 {
			c.status = proto.CloneOf(truth)
			c.status.ExitCode, c.status.Reason = codeUnread, ReasonError
		}
		r.emit(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, truth.Id, c.sandboxID)
		c.status = truth
	}
	switch p := &r.profile; {
	case order < p.StoppedFirst:
		r.setExited(c, *c.exits, "")
		stopped()
		started()
	case order < p.StartedExited:
		r.setExited(c, *c.exits, "")
		started()
		stopped()
	default:
		started()
		r.setExited(c, *c.exits, "")
		stopped()
	}
}

// ExitContainer lets a running container's process end with a code. An empty
// reason becomes Completed for code 0 and Error for any other, as in
// containerd. It may be called while the runtime is down: the status is then
// right once it is up again, but no event ever tells of the exit.
func (r *Runtime) ExitContainer(id string, code int32, reason string) error {
	return r.change(false, func() error {
		c, err := r.containers.find("container", id)
		if err != nil {
			return err
		}
		if c.status.State != containerRunning && c.status.State != containerUnknown {
			return fmt.Errorf("container %s is %s: %w", c.status.Id, c.status.State, ErrState)
		}
		r.endContainer(c, code, reason)
		return nil
	})
}

// endContainer lets a container exit and tells of it.
func (r *Runtime) endContainer(c *container, code int32, reason string) {
	late := r.profile.LateOOM && reason == ReasonOOMKilled
	if late {
		reason = ReasonError
	}
	r.setExited(c, code, reason)
	r.emit(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.status.Id, c.sandboxID)
	if late {
		c.status = proto.CloneOf(c.status)
		c.status.Reason = ReasonOOMKilled
		r.recordContainer(c, Edited)
	}
}

// setExited gives a container an end without telling anybody.
func (r *Runtime) setExited(c *container, code int32, reason string) {
	next := proto.CloneOf(c.status)
	next.State = containerExited
	next.FinishedAt = r.now()
	next.ExitCode = code
	switch {
	case reason != "":
	case code == 0:
		reason = ReasonCompleted
	default:
		reason = ReasonError
	}
	next.Reason = reason
	c.status = next
	r.recordContainer(c, Exited)
}

// StopContainer stops a container, with grace (its spec's StopCode) or by force
// (137). Stopping what doesn't run or doesn't exist is no error.
func (r *Runtime) StopContainer(id string, force bool) error {
	return r.changeUp(false, func() error {
		c, err := r.containers.find("container", id)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		r.stopContainer(c, force)
		return nil
	})
}

func (r *Runtime) stopContainer(c *container, force bool) {
	if c.status.State != containerRunning && c.status.State != containerUnknown {
		return
	}
	code := c.stopCode
	if force {
		code = CodeKilled
	}
	r.endContainer(c, code, "")
}

// RemoveContainer removes a container, which is first stopped by force where it
// runs. Its DELETED event no longer lists it. Removing what doesn't exist is no
// error.
func (r *Runtime) RemoveContainer(id string) error {
	return r.changeUp(true, func() error {
		c, err := r.containers.find("container", id)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		r.removeContainer(c, false)
		return nil
	})
}

func (r *Runtime) removeContainer(c *container, quiet bool) {
	r.stopContainer(c, true)
	r.forgetContainer(c)
	r.addContainer(c, Removed, quiet || !r.up)
	if quiet {
		return
	}
	r.emit(runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, c.status.Id, c.sandboxID)
}

func (r *Runtime) forgetContainer(c *container) {
	r.containers.remove(c.status.Id)
	delete(r.names, c.name)
	r.unlinkContainer(c)
}

func (r *Runtime) unlinkContainer(c *container) {
	rest := slices.DeleteFunc(r.members[c.sandboxID], func(o *container) bool { return o == c })
	if len(rest) == 0 {
		delete(r.members, c.sandboxID)
		return
	}
	r.members[c.sandboxID] = rest
}
