package pleg_test

import (
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// TestNodeReboot: what the state says of before a reboot is served as restored
// until the runtime has been listed. Then every container turns out to be dead,
// under positions that go on, in events that name the new boot.
func TestNodeReboot(t *testing.T) {
	t.Parallel()
	rt, path := simtest.Start(t, simruntime.Config{Seed: 9})
	sandbox, container := pod(t, rt, "a")
	cfg := pleg.Config{Endpoint: path, StateDir: t.TempDir(), RelistPeriod: 100 * time.Millisecond, BootID: "before"}
	a := startAgent(t, cfg, nil)
	waitFor(t, "the first relist", func() bool { return a.g.Health().Ready })
	a.settle()
	a.read()
	last := a.g.Position()
	must(t, a.stop())

	rt.Down()
	must(t, rt.ExitContainer(container, 255, "Unknown")) // what containerd says of what a reboot ended
	must(t, rt.ExitSandbox(sandbox))
	cfg.BootID = "after"
	b := startAgent(t, cfg, &last)
	if p, err := b.g.Pod("uid-a"); err != nil || !p.Restored || p.Containers[0].State != "running" {
		t.Errorf("before the runtime is there: %+v, %v", p, err)
	}
	if b.g.Health().Ready {
		t.Error("ready before anything was listed in this boot")
	}
	rt.Up()
	waitFor(t, "the runtime", func() bool { return b.g.Health().Ready })
	b.settle()
	told := map[string]int{}
	for _, ev := range b.read() {
		told[string(ev.Type)+" "+ev.BootID]++
		if ev.Position.Epoch != last.Epoch || ev.Position.Seq <= last.Seq {
			t.Errorf("position %v after %v", ev.Position, last)
		}
		if ev.Container.ID != "" && (!ev.ExitKnown || ev.ExitCode != 255) {
			t.Errorf("death %+v", ev)
		}
	}
	if len(told) != 2 || told["ContainerDied after"] != 1 || told["SandboxNotReady after"] != 1 {
		t.Errorf("told %v", told)
	}
	if p, err := b.g.Pod("uid-a"); err != nil || p.Restored || p.Containers[0].State != "exited" {
		t.Errorf("in the end: %+v, %v", p, err)
	}
	must(t, b.stop())
}
