package arbiter

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/plegd/plegd/store"
)

// TestHabitsOfVersions: vendors write versions in many ways; what can't be read
// is judged by what it does.
func TestHabitsOfVersions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, version string
		stream        StreamUse
		again         store.Reason
		dropped       bool // containers removed with their sandbox are not told
	}{
		{"containerd", "v2.4.2", StreamShared, store.ReasonExit137, false},
		{"containerd", "2.0.0-rc.3", StreamShared, store.ReasonExit137, false},
		{"containerd", "v1.7.35", StreamCompeting, store.ReasonExit137, false},
		{"containerd", "1.7.35~ds1", StreamCompeting, store.ReasonExit137, false},
		{"containerd", "v1.7.0-rc.1", StreamCompeting, store.ReasonExit137, false},
		{"containerd", "v1.7.23-k3s2", StreamCompeting, store.ReasonExit137, false},
		{"containerd", "1.7", StreamCompeting, store.ReasonExit137, false},
		{"containerd", "1.7+unknown", StreamCompeting, store.ReasonExit137, false},
		{"containerd", " v1.7.2\n", StreamCompeting, store.ReasonExit137, false},
		{"Containerd", "1.7.2", StreamCompeting, store.ReasonExit137, false},
		{"containerd", "1.70.0", StreamCompeting, store.ReasonExit137, false}, // not 1.7, and before 2.0
		{"containerd", "11.7.0", StreamShared, store.ReasonExit137, false},
		{"containerd", "1.6.20~ds1", StreamAbsent, store.ReasonExit137, false},
		{"containerd", "", StreamShared, store.ReasonExit137, false},
		{"containerd", "unknown", StreamShared, store.ReasonExit137, false},
		{"containerd", "v", StreamShared, store.ReasonExit137, false},
		{"containerd", "1", StreamShared, store.ReasonExit137, false},
		{"containerd", "-1.7", StreamShared, store.ReasonExit137, false},
		{"containerd", "99999999999999999999.7", StreamShared, store.ReasonExit137, false},
		{"cri-o", "1.37.0", StreamShared, store.ReasonExit255, true},
		{"cri-o", "1.7.0", StreamShared, store.ReasonExit255, true},
		{"CRI-O", "", StreamShared, store.ReasonExit255, true},
		{"docker", "29.1.2", StreamShared, 0, false},
		{"", "", StreamShared, 0, false},
	} {
		h := HabitsOf(tc.name, tc.version)
		if h.Stream != tc.stream || h.again != tc.again || h.never.has(MissContainerDropped) != tc.dropped {
			t.Errorf("%q %q: %+v", tc.name, tc.version, h)
		}
		if !h.never.has(MissContainerFailed) || len(h.Words) == 0 {
			t.Errorf("%q %q: %+v: no runtime tells of a failed start", tc.name, tc.version, h)
		}
	}
}

// TestEveryKindHasAName, and every change of an entity a kind.
func TestEveryKindHasAName(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range AllMissKinds() {
		if k.String() == "" || k.String() == "other" || seen[k.String()] {
			t.Errorf("kind %d is called %q", k, k)
		}
		seen[k.String()] = true
	}
	for _, kind := range []store.Kind{store.KindSandbox, store.KindContainer} {
		for s := store.StateCreated; s <= store.StateRemoved; s++ {
			want := kind.String() + "_" + s.Name(kind)
			if got := kindOfChange(kind, s, true).String(); got != want {
				t.Errorf("%s: %s", want, got)
			}
		}
	}
	if MissKind(200).String() != "other" {
		t.Error("a kind out of range has a name")
	}
}

// TestDesignShowsTheTable: docs/design.md has each row, with its source.
func TestDesignShowsTheTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	design := strings.ReplaceAll(string(text), "`", "")
	for i := range habits {
		h := &habits[i]
		name, versions := cmp.Or(h.runtime, "every"), "all"
		switch open := (release{}); {
		case h.from != open && h.to != open:
			versions = fmt.Sprintf("%d.%d to %d.%d", h.from.major, h.from.minor, h.to.major, h.to.minor)
		case h.to != open:
			versions = fmt.Sprintf("before %d.%d", h.to.major, h.to.minor)
		case h.from != open:
			versions = fmt.Sprintf("from %d.%d", h.from.major, h.from.minor)
		}
		if row := fmt.Sprintf("| %s | %s | %s | %s |", name, versions, h.what, h.source); !strings.Contains(design, row) {
			t.Errorf("docs/design.md lacks %s", row)
		}
	}
}

// TestDeathsAreNeverLearnt: a stream that keeps silent about deaths is broken,
// not in the habit of it.
func TestDeathsAreNeverLearnt(t *testing.T) {
	for _, k := range AllMissKinds() {
		c := NewCore(Limits{}, "")
		for range 2 * learnAfter {
			c.learnMiss(&step{}, k, true)
		}
		told := k == MissSandboxReady || k == MissSandboxNotReady || k == MissContainerRunning || k == MissContainerExited
		if learnt := c.learning.learnt.has(k); learnt == told {
			t.Errorf("%v: learnt %t", k, learnt)
		}
	}
}

// TestHabitsOfAnotherVersion: another version is judged anew, by the table and
// by what it does; what was learnt of the one before is no word about it.
func TestHabitsOfAnotherVersion(t *testing.T) {
	r := newRig(Limits{})
	see := func(version string) RuntimeHabits {
		r.step(&RuntimeSeen{At: r.stamp(), Name: "containerd", Version: version})
		return r.core.presentHabits()
	}
	if h := see("v1.7.35"); h.Known.Stream != StreamCompeting {
		t.Errorf("containerd 1.7: %+v", h)
	}
	r.core.learning.learnt = setOf(MissSandboxRemoved)
	if h := see("v1.7.35"); len(h.Learnt) != 1 {
		t.Errorf("the same version again: %+v", h)
	}
	if h := see("v2.4.2"); h.Known.Stream != StreamShared || len(h.Learnt) != 0 {
		t.Errorf("containerd 2.4: %+v", h)
	}
	if h := see("v1.7.35"); h.Known.Stream != StreamCompeting {
		t.Errorf("downgraded: %+v", h)
	}
}
