package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/retry"
)

// A label and an annotation by which the kubelet marks what it makes, beside those
// that say whose a container is (cri.LabelPodUID and its kin).
const (
	labelContainerName = "io.kubernetes.container.name"
	annotationRestarts = "io.kubernetes.container.restartCount"

	namespace = "plegd-compare"
)

// Shares of what a pod does next once all its containers run.
const (
	shareReplace = 0.15 // of its turns: the pod goes and another comes
	shareKill    = 0.3  // of containers that are ended: without grace, so code 137
)

// pod is one pod while it lives.
type pod struct {
	p       *Pods
	rng     *rand.Rand
	name    string
	config  *runtimeapi.PodSandboxConfig
	sandbox string
	ctrs    []*container
	paid    int // transitions that were made and not waited for yet
}

// container is one container of a pod, a new one at each restart.
type container struct {
	name    string
	id      string
	attempt uint32
	old     string // the one before, which a kubelet keeps until the next restart
}

// live runs the pod, restarts its containers and removes it at last, at the
// configured pace. It returns early when ctx ends and then leaves everything as
// it is.
func (o *pod) live(ctx context.Context) error {
	if err := o.run(ctx); err != nil {
		return err
	}
	for {
		if o.pace(ctx); ctx.Err() != nil {
			return nil //nolint:nilerr // it was to end
		}
		if o.rng.Float64() < shareReplace {
			return o.remove(ctx)
		}
		c := o.ctrs[o.rng.IntN(len(o.ctrs))]
		if err := o.restart(ctx, c); err != nil {
			return errors.Join(err, o.remove(ctx))
		}
	}
}

// pace waits so long that the pod makes its share of transitions a second.
func (o *pod) pace(ctx context.Context) {
	mean := float64(o.paid) * float64(o.p.spec.Pods) / o.p.spec.Rate
	o.paid = 0
	_ = retry.Sleep(ctx, time.Duration((0.5+o.rng.Float64())*mean*float64(time.Second)))
}

// run makes the sandbox and starts all containers.
func (o *pod) run(ctx context.Context) error {
	uid := strconv.FormatUint(o.p.owner.random, 36) + "-" + o.name
	o.config = &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: o.name, Namespace: namespace, Uid: uid},
		// Given, so that the runtime needs none of the machine's.
		DnsConfig: &runtimeapi.DNSConfig{Servers: []string{"127.0.0.1"}},
		Labels: map[string]string{
			cri.LabelPodName: o.name, cri.LabelPodNamespace: namespace, cri.LabelPodUID: uid, labelOwner: o.p.owner.String(),
		},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: o.p.spec.CgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER, Network: o.network()},
			},
		},
	}
	if !o.p.spec.HostNetwork { // else the name is the node's
		o.config.Hostname = o.name
	}
	r, err := call(ctx, callTimeout, o.p.api.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: o.config})
	if err != nil {
		return fmt.Errorf("run pod: %w", err)
	}
	o.sandbox = r.GetPodSandboxId()
	o.paid += 2
	for i := range o.p.spec.Containers {
		c := &container{name: "c" + strconv.Itoa(i+1)}
		o.ctrs = append(o.ctrs, c)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was to end
		}
		if err := o.start(ctx, c); err != nil {
			return errors.Join(err, o.remove(ctx))
		}
	}
	return nil
}

func (o *pod) network() runtimeapi.NamespaceMode {
	if o.p.spec.HostNetwork {
		return runtimeapi.NamespaceMode_NODE
	}
	return runtimeapi.NamespaceMode_POD
}

// start creates and starts a container.
func (o *pod) start(ctx context.Context, c *container) error {
	uid := o.config.GetMetadata().GetUid()
	r, err := call(ctx, callTimeout, o.p.api.CreateContainer, &runtimeapi.CreateContainerRequest{
		PodSandboxId: o.sandbox, SandboxConfig: o.config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: c.name, Attempt: c.attempt},
			Image:    &runtimeapi.ImageSpec{Image: o.p.spec.Image},
			Command:  o.p.command,
			Labels: map[string]string{
				cri.LabelPodName: o.name, cri.LabelPodNamespace: namespace, cri.LabelPodUID: uid, labelContainerName: c.name, labelOwner: o.p.owner.String(),
			},
			Annotations: map[string]string{annotationRestarts: strconv.Itoa(int(c.attempt))},
			Linux:       &runtimeapi.LinuxContainerConfig{},
		},
	})
	if err != nil {
		return fmt.Errorf("create container: %w", err)
	}
	c.id = r.GetContainerId()
	o.paid++
	if _, err := call(ctx, callTimeout, o.p.api.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: c.id}); err != nil {
		return fmt.Errorf("start container: %w", err)
	}
	o.paid++
	return nil
}

// grace is how many seconds a container has after SIGTERM.
const grace = 1

// restart ends a container, unless it has ended by itself, starts it anew and
// removes the one before the one that ended.
func (o *pod) restart(ctx context.Context, c *container) error {
	stop := &runtimeapi.StopContainerRequest{ContainerId: c.id, Timeout: grace}
	if o.rng.Float64() < shareKill {
		stop.Timeout = 0
	}
	if _, err := call(ctx, callTimeout, o.p.api.StopContainer, stop); err != nil {
		return fmt.Errorf("stop container: %w", err)
	}
	o.paid++
	if o.pace(ctx); ctx.Err() != nil {
		return nil //nolint:nilerr // it was to end
	}
	gone := c.old
	c.old, c.attempt = c.id, c.attempt+1
	if err := o.start(ctx, c); err != nil {
		return err
	}
	if gone == "" {
		return nil
	}
	if _, err := call(ctx, callTimeout, o.p.api.RemoveContainer, &runtimeapi.RemoveContainerRequest{ContainerId: gone}); err != nil && !cri.NotFound(err) {
		return fmt.Errorf("remove container: %w", err)
	}
	o.paid++
	return nil
}

// remove stops the pod and removes it.
func (o *pod) remove(ctx context.Context) error {
	return o.p.removePod(ctx, o.sandbox)
}
