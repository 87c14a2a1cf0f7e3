package e2e

import (
	"strings"
	"testing"
)

func TestSameVersion(t *testing.T) {
	for _, tt := range []struct {
		said, want string
		same       bool
	}{
		{"2.4.2", "2.4.2", true},
		{"v2.4.2", "2.4.2", true},
		{"2.4.2+unknown", "2.4.2", true},
		{"1.6.20~ds1", "1.6.20", true},
		{"1.6.20~ds1-1+deb12u3", "1.6.20", true},
		{"2.4.20", "2.4.2", false},
		{"2.4.2-rc.1", "2.4.2", false},
		{"1.6.21~ds1", "1.6.20", false},
		{"", "2.4.2", false},
	} {
		if same := sameVersion(tt.said, tt.want); same != tt.same {
			t.Errorf("%q and %q: %v", tt.said, tt.want, same)
		}
	}
}

func TestPinned(t *testing.T) {
	for _, f := range []flavour{containerd2, containerd17} {
		if v, err := pinned(f.pin, f.module); err != nil || strings.Count(v, ".") < 2 || strings.HasPrefix(v, "v") {
			t.Errorf("%s: %q, %v", f.name, v, err)
		}
	}
	if v, err := pinned(containerd2.pin, "github.com/containerd"); err == nil {
		t.Errorf("%q of a module that isn't required", v)
	}
}
