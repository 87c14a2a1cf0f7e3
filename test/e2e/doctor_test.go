package e2e

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/doctor"
)

// examine runs plegd doctor on a runtime, with pods that come and go, and returns its
// report and exit code.
func examine(t *testing.T, rt *containerd) (r doctor.Report, code int) {
	t.Helper()
	cmd := exec.Command(binary(), "doctor", "--runtime-endpoint", "unix://"+rt.socket, "--json", "--for", "10s",
		"--workload", "seed=1,pods=3,rate=6,containers=1,network=host,image="+imageName+",cgroup-parent="+cgroupParent())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s%s", err, out, &stderr)
	}
	t.Cleanup(func() {
		for _, l := range r.Lines {
			t.Logf("%-8s %-10s %s", l.Verdict, l.Check, l.Finding)
		}
	})
	return r, cmd.ProcessState.ExitCode()
}

// TestDoctor: the containerd with events for all is fit, the one whose subscribers
// compete and the one without events are not.
func TestDoctor(t *testing.T) {
	t.Parallel()
	needBinary(t)
	for _, tc := range []struct {
		flavour flavour
		code    int
		lines   map[string]doctor.Verdict
	}{
		{containerd2, 0, map[string]doctor.Verdict{
			"stream": doctor.Good, "sharing": doctor.Good, "missing": doctor.Good, "types": doctor.Good, "duplicates": doctor.Good,
			"order": doctor.Good, "reconnect": doctor.Good, "payloads": doctor.Good, "times": doctor.Good, "lists": doctor.Good, "calls": doctor.Good,
		}},
		{containerd17, 13, map[string]doctor.Verdict{"stream": doctor.Good, "sharing": doctor.Bad}},
		{containerd16, 13, map[string]doctor.Verdict{"stream": doctor.Bad, "lists": doctor.Good, "calls": doctor.Good}},
	} {
		t.Run(tc.flavour.name, func(t *testing.T) {
			t.Parallel()
			rt := startContainerd(t, tc.flavour)
			pod := rt.runPod(t, "other")
			r, code := examine(t, rt)
			if code != tc.code || !r.Whole {
				t.Errorf("code %d, want %d; whole %t; %s", code, tc.code, r.Whole, r.Summary)
			}
			got := map[string]doctor.Verdict{}
			for _, l := range r.Lines {
				got[l.Check] = l.Verdict
			}
			for check, want := range tc.lines {
				if got[check] != want {
					t.Errorf("%s is %q, want %q", check, got[check], want)
				}
			}
			left, err := rt.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
			if err != nil || len(left.GetItems()) != 1 || left.GetItems()[0].GetId() != pod.sandbox {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
