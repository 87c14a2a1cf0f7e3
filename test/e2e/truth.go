package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What plegd serves at /v1/pods, as far as it is compared with the runtime.
type servedPods struct {
	Position string      `json:"position"`
	Pods     []servedPod `json:"pods"`
}

type servedPod struct {
	UID        string            `json:"uid"`
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	Restored   bool              `json:"restored"`
	Sandboxes  []servedSandbox   `json:"sandboxes"`
	Containers []servedContainer `json:"containers"`
}

type servedSandbox struct {
	ID       string   `json:"id"`
	Reported string   `json:"reported"`
	Attempt  uint32   `json:"attempt"`
	IPs      []string `json:"ips"`
	Restored bool     `json:"restored"`
}

type servedContainer struct {
	ID         string     `json:"id"`
	SandboxID  string     `json:"sandbox_id"`
	Name       string     `json:"name"`
	Reported   string     `json:"reported"`
	Attempt    uint32     `json:"attempt"`
	StartedAt  *time.Time `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	ExitCode   *int32     `json:"exit_code"`
	Restored   bool       `json:"restored"`
}

// served is one line for each sandbox and container that plegd serves, sorted.
func (a *agent) served(t testing.TB) []string {
	t.Helper()
	var all servedPods
	if err := json.Unmarshal([]byte(a.getAPI(t, "/v1/pods")), &all); err != nil {
		t.Fatalf("pods: %v", err)
	}
	var lines []string
	for _, p := range all.Pods {
		for _, s := range p.Sandboxes {
			lines = append(lines, sandboxLine(s.ID, p.UID, p.Name, s.Attempt, s.Reported, s.IPs)+restored(s.Restored))
		}
		for _, c := range p.Containers {
			code := "none"
			if c.ExitCode != nil {
				code = fmt.Sprint(*c.ExitCode)
			}
			lines = append(lines, containerLine(c.ID, c.SandboxID, p.UID, c.Name, c.Attempt, c.Reported,
				nanos(c.StartedAt), nanos(c.FinishedAt), code)+restored(c.Restored))
		}
	}
	slices.Sort(lines)
	return lines
}

func restored(is bool) string {
	if is {
		return " restored"
	}
	return ""
}

func nanos(at *time.Time) int64 {
	if at == nil {
		return 0
	}
	return at.UnixNano()
}

// truth is the same lines by what the runtime itself says: its lists, and a status of each.
func (c *containerd) truth(ctx context.Context) ([]string, error) {
	var lines []string
	sandboxes, err := c.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("truth: %w", err)
	}
	for _, s := range sandboxes.GetItems() {
		r, err := c.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId()})
		if err != nil {
			return nil, fmt.Errorf("truth: %w", err)
		}
		state := "ready"
		if r.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
			state = "notready"
		}
		var ips []string
		if ip := r.GetStatus().GetNetwork().GetIp(); ip != "" {
			ips = append(ips, ip)
		}
		for _, more := range r.GetStatus().GetNetwork().GetAdditionalIps() {
			ips = append(ips, more.GetIp())
		}
		m := r.GetStatus().GetMetadata()
		lines = append(lines, sandboxLine(s.GetId(), m.GetUid(), m.GetName(), m.GetAttempt(), state, ips))
	}
	containers, err := c.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, fmt.Errorf("truth: %w", err)
	}
	for _, item := range containers.GetContainers() {
		r, err := c.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: item.GetId()})
		if err != nil {
			return nil, fmt.Errorf("truth: %w", err)
		}
		s := r.GetStatus()
		state, code := "created", "none"
		switch s.GetState() {
		case runtimeapi.ContainerState_CONTAINER_UNKNOWN: // of a runtime that was killed in the middle of a start
			state = "unknown"
		case runtimeapi.ContainerState_CONTAINER_RUNNING:
			state = "running"
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			state, code = "exited", fmt.Sprint(s.GetExitCode())
		}
		lines = append(lines, containerLine(s.GetId(), item.GetPodSandboxId(), s.GetLabels()[labelPodUID],
			s.GetMetadata().GetName(), s.GetMetadata().GetAttempt(), state, s.GetStartedAt(), s.GetFinishedAt(), code))
	}
	slices.Sort(lines)
	return lines, nil
}

// A sandbox that has ended keeps its addresses with plegd and loses them with the runtime, so only
// those of a ready one are compared.
func sandboxLine(id, uid, name string, attempt uint32, state string, ips []string) string {
	if state != "ready" {
		ips = nil
	}
	return fmt.Sprintf("sandbox %s of %s (%s) attempt %d %s %v", id, uid, name, attempt, state, ips)
}

// In UNKNOWN a runtime takes back the times that it has told; plegd keeps them.
func containerLine(id, sandbox, uid, name string, attempt uint32, state string, started, finished int64, code string) string {
	if state == "unknown" {
		started, finished, code = 0, 0, "none"
	}
	return fmt.Sprintf("container %s in %s of %s (%s) attempt %d %s started %d finished %d code %s",
		id, sandbox, uid, name, attempt, state, started, finished, code)
}

// awaitTruth waits until plegd serves just what the runtime has.
func (a *agent) awaitTruth(t testing.TB, rt *containerd) {
	t.Helper()
	a.await(t, settle, "plegd serves what the runtime has", func([]event) error {
		truth, err := rt.truth(t.Context())
		if err != nil {
			return err
		}
		served := a.served(t)
		if slices.Equal(served, truth) {
			return nil
		}
		var b strings.Builder
		for _, line := range served {
			if !slices.Contains(truth, line) {
				fmt.Fprintln(&b, "plegd:  ", line)
			}
		}
		for _, line := range truth {
			if !slices.Contains(served, line) {
				fmt.Fprintln(&b, "runtime:", line)
			}
		}
		return fmt.Errorf("of %d lines of plegd and %d of the runtime differ\n%s", len(served), len(truth), b.String())
	})
}
