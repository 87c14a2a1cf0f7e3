package runtimes

import (
	"errors"
	"strings"
	"testing"
)

// Root may connect to every socket, so the test can't make this happen.
func TestExplainSaysWhatPermissionTakes(t *testing.T) {
	got := explain(errors.New("dial unix /run/x.sock: connect: permission denied"))
	if got == nil || !strings.Contains(got.Error(), "run as root") {
		t.Errorf("explained as %v", got)
	}
}
