package load

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestParseSpec(t *testing.T) {
	for text, want := range map[string]Spec{
		"seed=1": {Seed: 1, Pods: 10, Rate: 5},
		"seed=7, pods=500,containers=40,rate=0.5": {Seed: 7, Pods: 500, Containers: 40, Rate: 0.5},
		"profile=cri-o,pods=3":                    {Pods: 3, Rate: 5, Profile: "cri-o"},
		"image=registry.example:5000/a/b:1@sha256:00,network=host,cgroup-parent=/x": {
			Pods: 10, Rate: 5, Containers: 2, Image: "registry.example:5000/a/b:1@sha256:00", HostNetwork: true, CgroupParent: "/x"},
		"image=x,network=pod,containers=1": {Pods: 10, Rate: 5, Containers: 1, Image: "x"},
	} {
		if got, err := ParseSpec(text, []string{"cri-o"}); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

// A process is known by its id and its start, so that one that has got the id of
// another doesn't keep that one's pods alive.
func TestOwner(t *testing.T) {
	self, err := newOwner()
	if err != nil || !alive(self.String()) {
		t.Fatalf("%+v, %v", self, err)
	}
	reused := owner{pid: self.pid, start: self.start - 1}
	cmd := exec.Command("/bin/true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	gone := owner{pid: cmd.ProcessState.Pid(), start: self.start}
	for _, o := range []owner{reused, gone} {
		if alive(o.String()) {
			t.Errorf("%s is alive in process %d", o, os.Getpid())
		}
	}
	// What no load of this program has written is not its own to remove.
	for _, label := range []string{"", "web", "1", "x.1"} {
		if !alive(label) {
			t.Errorf("%q counts as a dead process", label)
		}
	}
}

// Failures that differ by ids and names are one failure, and the rest is no example.
func TestFailures(t *testing.T) {
	p := &Pods{failed: map[string]int{}}
	if s := p.Failed(); s != "" {
		t.Errorf("%q", s)
	}
	for i := range 30 {
		p.fail(fmt.Errorf("run pod: sandbox \"%064x\" of plegd-compare-%d-0: no space", i, i))
	}
	if s := p.Failed(); s != `30 calls of the load failed, such as: run pod: sandbox "..." of ...: no space` {
		t.Errorf("%q", s)
	}
	for i := range 100 {
		p.fail(fmt.Errorf("odd %d", i))
	}
	if s := p.Failed(); !strings.HasPrefix(s, "130 calls of the load failed, such as: run pod") {
		t.Errorf("%q", s)
	}
	if len(p.failed) > maxFailures+1 {
		t.Errorf("%d are kept", len(p.failed))
	}
}
