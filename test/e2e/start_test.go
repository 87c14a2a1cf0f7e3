package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/logtest"
)

// An agent that starts before its runtime keeps trying and says what it waits for.
func TestRuntimeComesLate(t *testing.T) {
	t.Parallel()
	needBinary(t)
	rt := startContainerd(t, containerd2)
	p := rt.runPod(t, "early")
	id := p.run(t, "main", 0, "pause")
	rt.stop(t)
	if err := os.Remove(rt.socket); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}

	a := startAgent(t, agentConfig{endpoint: rt.socket, dir: workDir(t, "plegd")})
	a.await(t, settle, "plegd says what it waits for", func([]event) error {
		code, body, err := a.get("/readyz?verbose")
		if err == nil && (code != http.StatusServiceUnavailable || !strings.Contains(body, rt.socket)) {
			err = fmt.Errorf("readyz: %d\n%s", code, body)
		}
		return err
	})
	if code, _, err := a.get("/livez"); err != nil || code != http.StatusOK {
		t.Errorf("livez without a runtime: %d, %v", code, err)
	}

	rt.start(t)
	a.awaitReady(t)
	a.awaitTrace(t, settle, id, "Created Started")
	checkOrder(t, a.awaitTrace(t, settle, p.sandbox, "Created Ready"))
}

// make run takes the runtime that answers, tells its pods and ends when it is told to.
func TestMakeRun(t *testing.T) {
	needBinary(t)
	rt := startContainerd(t, containerd2)
	rt.runPod(t, "made")
	dir := workDir(t, "mr")
	makerun := filepath.Join(dir, "makerun")
	if out, err := exec.Command("go", "build", "-o", makerun, "../makerun").CombinedOutput(); err != nil {
		t.Fatalf("build makerun: %v\n%s", err, out)
	}
	cmd := exec.Command(makerun, "-plegd", binary(), "-dir", filepath.Join(dir, "state"), "--", "--output", "json", "--http-listen", "")
	cmd.Env = append(os.Environ(), "CONTAINER_RUNTIME_ENDPOINT=unix://"+rt.socket)
	var stdout, stderr logtest.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })

	eventually(t, settle, "make run tells the pod", func() error {
		if !strings.Contains(stdout.String(), `"name":"made"`) {
			return fmt.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
		}
		return nil
	})
	if said := stderr.String(); !strings.Contains(said, "running on containerd, "+rt.socket) {
		t.Errorf("make run said %q", said)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("make run ended with %v\n%s", err, stderr.String())
		}
	case <-time.After(agentStopTimeout + time.Second):
		t.Error("make run goes on after SIGTERM")
	}
}
