package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A client that nobody here wrote, so that a misunderstanding of CRI is not shared by the tests and
// what they test. Its pods also lack the kubelet's labels.
func TestLifeByCrictl(t *testing.T) {
	t.Parallel()
	w := watch(t, containerd2)
	crictl := func(args ...string) string {
		t.Helper()
		endpoint := "unix://" + w.rt.socket
		cmd := exec.Command(filepath.Join(runtimesDir(), "bin", "crictl"), append([]string{"-r", endpoint, "-i", endpoint, "-t", "30s"}, args...)...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("crictl %v: %v\n%s", args, err, stderr.String())
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name string, v any) string {
		t.Helper()
		content, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(w.dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	podFile := write("pod.json", &runtimeapi.PodSandboxConfig{
		Metadata:  &runtimeapi.PodSandboxMetadata{Name: "crictl", Namespace: "default", Uid: "uid-crictl"},
		DnsConfig: &runtimeapi.DNSConfig{Servers: []string{"127.0.0.1"}},
		Linux:     &runtimeapi.LinuxPodSandboxConfig{CgroupParent: cgroupParent()},
	})
	containerFile := write("container.json", &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Image:    &runtimeapi.ImageSpec{Image: imageName},
		Args:     []string{"exit", "11", "1s"},
		Linux:    &runtimeapi.LinuxContainerConfig{},
	})

	sandbox := crictl("runp", podFile)
	id := crictl("create", sandbox, containerFile, podFile)
	crictl("start", id)
	w.awaitTrace(t, settle, id, "Created Started Died")
	crictl("rm", id)
	crictl("stopp", sandbox)
	crictl("rmp", sandbox)
	events := w.awaitTrace(t, settle, id, wholeContainer)
	if died, _ := find(events, "ContainerDied", id); died.ExitCode.String() != "11" || died.Pod.UID != "uid-crictl" {
		t.Errorf("%v of pod %s: want 11 of uid-crictl", died, died.Pod.UID)
	}
	checkOrder(t, w.awaitTrace(t, settle, sandbox, wholeSandbox))
}
