package e2e

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The labels and the annotation by which the kubelet marks what it makes.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"
	annotationRestarts = "io.kubernetes.container.restartCount"

	namespace = "e2e"
)

// stopTimeout is how many seconds a container has after SIGTERM.
const stopTimeout = 5

// pod is a sandbox made as the kubelet makes one.
type pod struct {
	rt      *containerd
	name    string
	uid     string
	sandbox string
	ip      string
	config  *runtimeapi.PodSandboxConfig
}

// runPod makes and starts a sandbox. The name also gives the UID.
func (c *containerd) runPod(t testing.TB, name string, changes ...func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	p, err := c.tryRunPod(t.Context(), name, changes...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// tryRunPod is runPod for goroutines, which may not end a test.
func (c *containerd) tryRunPod(ctx context.Context, name string, changes ...func(*runtimeapi.PodSandboxConfig)) (*pod, error) {
	uid := "uid-" + name
	p := &pod{rt: c, name: name, uid: uid, config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: namespace, Uid: uid},
		Hostname: name,
		// Given, so that the runtime doesn't copy what this machine may not have.
		DnsConfig: &runtimeapi.DNSConfig{Servers: []string{"127.0.0.1"}},
		Labels:    map[string]string{labelPodName: name, labelPodNamespace: namespace, labelPodUID: uid, "app": name},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: cgroupParent(),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}}
	for _, change := range changes {
		change(p.config)
	}
	r, err := c.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		return nil, fmt.Errorf("run pod %s: %w", name, err)
	}
	p.sandbox = r.GetPodSandboxId()
	s, err := c.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.sandbox})
	if err != nil {
		return nil, fmt.Errorf("run pod %s: %w", name, err)
	}
	p.ip = s.GetStatus().GetNetwork().GetIp()
	return p, nil
}

// run creates and starts a container that runs the workload with the arguments.
func (p *pod) run(t testing.TB, name string, attempt uint32, args ...string) (id string) {
	t.Helper()
	id, err := p.tryRun(t.Context(), name, attempt, args...)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// tryRun is run for goroutines, which may not end a test.
func (p *pod) tryRun(ctx context.Context, name string, attempt uint32, args ...string) (id string, err error) {
	created, err := p.rt.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
			Image:    &runtimeapi.ImageSpec{Image: imageName},
			Args:     args,
			Labels: map[string]string{
				labelPodName: p.name, labelPodNamespace: namespace, labelPodUID: p.uid, labelContainerName: name,
			},
			Annotations: map[string]string{annotationRestarts: strconv.Itoa(int(attempt))},
			Linux:       &runtimeapi.LinuxContainerConfig{},
		},
		SandboxConfig: p.config,
	})
	if err != nil {
		return "", fmt.Errorf("create container %s/%s: %w", p.name, name, err)
	}
	id = created.GetContainerId()
	if _, err := p.rt.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return "", fmt.Errorf("start container %s/%s: %w", p.name, name, err)
	}
	return id, nil
}

// stop stops the sandbox and with it every container.
func (p *pod) stop(t testing.TB) {
	t.Helper()
	if _, err := p.rt.cri.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		t.Fatalf("stop pod %s: %v", p.name, err)
	}
}

// remove removes the stopped sandbox and with it every container.
func (p *pod) remove(t testing.TB) {
	t.Helper()
	if _, err := p.rt.cri.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		t.Fatalf("remove pod %s: %v", p.name, err)
	}
}

// stopContainer stops one container as the kubelet does: SIGTERM, then SIGKILL.
func (c *containerd) stopContainer(t testing.TB, id string) {
	t.Helper()
	_, err := c.cri.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: stopTimeout})
	if err != nil {
		t.Fatalf("stop container %s: %v", id, err)
	}
}

// removeContainer removes one container that has ended.
func (c *containerd) removeContainer(t testing.TB, id string) {
	t.Helper()
	if _, err := c.cri.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		t.Fatalf("remove container %s: %v", id, err)
	}
}

// status asks the runtime itself, past the proxy.
func (c *containerd) status(t testing.TB, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	r, err := c.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatalf("status of container %s: %v", id, err)
	}
	return r.GetStatus()
}

// exited waits until the runtime says that the container has ended, and returns what it says.
func (c *containerd) exited(t testing.TB, id string) *runtimeapi.ContainerStatus {
	t.Helper()
	var s *runtimeapi.ContainerStatus
	eventually(t, 20*time.Second, "container exits", func() error {
		if s = c.status(t, id); s.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			return fmt.Errorf("container %s is %v", id, s.GetState())
		}
		return nil
	})
	return s
}

// goneFromRuntime says whether the runtime has no such container.
func (c *containerd) goneFromRuntime(t testing.TB, id string) bool {
	t.Helper()
	_, err := c.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return status.Code(err) == codes.NotFound
}
