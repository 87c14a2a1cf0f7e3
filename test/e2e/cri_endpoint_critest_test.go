package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// critest runs specs of the CRI's own validation suite on a socket.
func critest(t *testing.T, socket, focus string) (output string, err error) {
	t.Helper()
	bin := filepath.Join(runtimesDir(), "critest", "critest")
	if _, err := os.Stat(bin); err != nil {
		refuse(t, "no critest (make e2e builds it): "+err.Error())
	}
	endpoint := "unix://" + socket
	cmd := exec.Command(bin, "-runtime-endpoint", endpoint, "-image-endpoint", endpoint, "-ginkgo.no-color", "-ginkgo.focus", focus)
	cmd.Dir = workDir(t, "critest")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// compareCritest runs the specs that only read, and one that doesn't.
func (c *criClients) compareCritest(t *testing.T) {
	t.Helper()
	const reading = "should return version info|should return runtime conditions|should support returning metrics descriptors"
	for _, socket := range []string{c.rt.socket, c.socket} {
		if out, err := critest(t, socket, reading); err != nil || !strings.Contains(out, "3 Passed | 0 Failed") {
			t.Errorf("critest on %s: %v\n%s", socket, err, out)
		}
	}
	if out, err := critest(t, c.socket, "should support running PodSandbox"); err == nil || !strings.Contains(out, "1 Failed") || !strings.Contains(out, "PermissionDenied") {
		t.Errorf("critest made a pod: %v\n%s", err, out)
	}
}
