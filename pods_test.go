package pleg_test

import (
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// TestAPodIsTheCallersOwn: who changes it changes nothing of what others read.
func TestAPodIsTheCallersOwn(t *testing.T) {
	t.Parallel()
	rt, path := simtest.Start(t, simruntime.Config{DualStack: true})
	_, container := pod(t, rt, "a")
	must(t, rt.ExitContainer(container, 3, ""))
	a := startAgent(t, pleg.Config{Endpoint: path, RelistPeriod: 50 * time.Millisecond}, nil)
	a.settle()
	mine, err := a.g.Pod("uid-a")
	must(t, err)
	mine.Labels["app"] = "changed"
	mine.IPs[0], mine.Sandboxes[0].IPs[1] = "changed", "changed"
	*mine.Containers[0].ExitCode = 99
	again, err := a.g.Pod("uid-a")
	must(t, err)
	if again.Labels["app"] != "a" || again.IPs[0] == "changed" || again.Sandboxes[0].IPs[1] == "changed" || *again.Containers[0].ExitCode != 3 {
		t.Errorf("%+v", again)
	}
	a.finish()
}
