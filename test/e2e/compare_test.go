package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// comparison is what the test reads of the JSON report of plegd compare.
type comparison struct {
	From        int64 `json:"from"`
	To          int64 `json:"to"`
	Transitions []struct {
		Type string `json:"type"`
		ID   string `json:"id"`
		At   int64  `json:"at"`
	} `json:"transitions"`
	Modes []struct {
		Name     string `json:"name"`
		NotRun   string `json:"not_run"`
		Ended    string `json:"ended"`
		Told     int    `json:"told"`
		Missed   int    `json:"missed"`
		Wrong    int    `json:"wrong"`
		Findings []struct {
			Fault string `json:"fault"`
			Type  string `json:"type"`
			ID    string `json:"id"`
		} `json:"findings"`
		All struct {
			P50 int64 `json:"p50"`
		} `json:"all"`
		Cost struct {
			CPU   int64 `json:"cpu"`
			Total struct {
				Calls int `json:"calls"`
			} `json:"total"`
		} `json:"cost"`
	} `json:"modes"`
	Runtime struct {
		Name string `json:"name"`
		PID  int    `json:"pid"`
		CPU  int64  `json:"cpu"`
	} `json:"runtime"`
	Winner string `json:"winner"`
	Load   string `json:"load"`
}

// runCompare runs plegd compare and returns its report.
func runCompare(t *testing.T, args ...string) (r comparison, stderr string) {
	t.Helper()
	cmd := exec.Command(binary(), append([]string{"compare", "--modes", "generic,evented,hybrid,hinted", "--json"}, args...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		t.Fatalf("plegd compare %v: %v\n%s", args, err, &errs)
	}
	return r, errs.String()
}

// record has plegd record what the runtime says, until stop.
func record(t *testing.T, rt *containerd, path string) (stop func()) {
	t.Helper()
	cmd := exec.Command(binary(), "record", "--runtime-endpoint", "unix://"+rt.socket, "--output", path)
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("plegd record: %v\n%s", err, &errs)
		}
	})
	t.Cleanup(stop)
	eventually(t, 10*time.Second, "the recording begins", func() error {
		_, err := os.Stat(path)
		return err
	})
	return stop
}

// within lists what happened well inside of the measurement of the live report: what is
// near its ends may be on either side of them by how its time is known.
func (r *comparison) within(live *comparison) (all []string) {
	const edge = int64(300 * time.Millisecond)
	for _, tr := range r.Transitions {
		if tr.At > live.From+edge && tr.At < live.To-edge {
			all = append(all, tr.Type+" "+tr.ID)
		}
	}
	slices.Sort(all)
	return all
}

// missed lists what a mode missed.
func (r *comparison) missed(mode int) (all []string) {
	for _, f := range r.Modes[mode].Findings {
		if f.Fault == "missed" {
			all = append(all, f.Type+" "+f.ID)
		}
	}
	slices.Sort(all)
	return all
}

// plegd compare makes pods on a real runtime, finds that the stream is told of
// sooner than relists find it, reads the runtime's CPU, and removes its pods. On a
// recording of the same time it names the same transitions, misses and winner.
func TestCompareOnContainerd(t *testing.T) {
	t.Parallel()
	needBinary(t)
	rt := startContainerd(t, containerd2)
	other := rt.runPod(t, "other")
	recording := filepath.Join(rt.dir, "r.plegd")
	stop := record(t, rt, recording)
	r, stderr := runCompare(t, "--runtime-endpoint", "unix://"+rt.socket, "--for", "12s",
		"--workload", "seed=1,pods=3,rate=6,containers=1,image="+imageName+",cgroup-parent="+cgroupParent())
	stop()
	types := map[string]int{}
	for _, tr := range r.Transitions {
		types[tr.Type]++
	}
	t.Logf("%s; %d transitions %v, winner %s, CPU of the runtime %d ms", r.Load, len(r.Transitions), types, r.Winner, r.Runtime.CPU/1e6)
	for _, m := range r.Modes {
		t.Logf("%s told %d, missed %d, wrong %d, p50 %.1f ms, %d calls, CPU %d ms", m.Name, m.Told, m.Missed, m.Wrong, float64(m.All.P50)/1e6, m.Cost.Total.Calls, m.Cost.CPU/1e6)
		if m.NotRun+m.Ended != "" || m.Told == 0 {
			t.Errorf("%s: %s%s, told %d", m.Name, m.NotRun, m.Ended, m.Told)
		}
	}
	for _, typ := range []string{"SandboxCreated", "SandboxReady", "ContainerCreated", "ContainerStarted", "ContainerDied"} {
		if types[typ] == 0 {
			t.Errorf("no %s in %v", typ, types)
		}
	}
	generic, evented, hybrid := r.Modes[0], r.Modes[1], r.Modes[2]
	if hybrid.Missed > 0 || hybrid.Wrong > 0 || evented.Missed > 0 || evented.Wrong > 0 {
		t.Errorf("evented %+v, hybrid %+v", evented, hybrid)
	}
	// A relist comes half a second after it on average; an event within some ms.
	if hybrid.All.P50 >= generic.All.P50 || evented.All.P50 >= generic.All.P50 {
		t.Errorf("p50: generic %d, evented %d, hybrid %d", generic.All.P50, evented.All.P50, hybrid.All.P50)
	}
	if r.Runtime.Name != "containerd" || r.Runtime.PID != rt.cmd.Process.Pid || r.Runtime.CPU == 0 || r.Winner == "" {
		t.Errorf("runtime %+v, winner %q", r.Runtime, r.Winner)
	}
	left, err := rt.cri.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(left.GetItems()) != 1 || !slices.ContainsFunc(left.GetItems(), func(s *runtimeapi.PodSandbox) bool { return s.GetId() == other.sandbox }) {
		t.Errorf("pods are left: %v\n%s", left.GetItems(), stderr)
	}

	again, _ := runCompare(t, "--input", recording)
	if a, b := r.within(&r), again.within(&r); !slices.Equal(a, b) || len(a) < 20 {
		t.Errorf("live %d transitions, from the recording %d:\n%v\n%v", len(a), len(b), a, b)
	}
	for i := 1; i < 3; i++ { // the relists of generic and hinted fall on other moments
		if a, b := r.missed(i), again.missed(i); !slices.Equal(a, b) {
			t.Errorf("%s missed %v live and %v on the recording", r.Modes[i].Name, a, b)
		}
	}
	if r.Winner != again.Winner {
		t.Errorf("winner %s live, %s on the recording", r.Winner, again.Winner)
	}
}
