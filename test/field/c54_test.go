package field_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store/storetest"
)

// heavyEnd makes an exit that takes room in the store.
func heavyEnd(n int32) func(*runtimeapi.ContainerStatus) {
	return func(c *runtimeapi.ContainerStatus) { exit(c, n); c.Message = strings.Repeat("m", 16<<10) }
}

// condition says whether a condition of health holds.
func (f *field) condition(name string) bool { return f.metric("condition", name) == 1 }

// changesOnAFullDisk lets ten containers end, five begin and five go, and
// checks that it is told and shown at once although it can't be written.
func (f *field) changesOnAFullDisk(all []string) {
	f.t.Helper()
	for i, id := range all[:10] {
		f.must(f.rt.EditContainer(id, heavyEnd(int32(i+1))))
	}
	f.until("the state to be degraded", func() bool { return f.condition("store_degraded") })
	a := f.sandbox("A", "U1", "10.0.0.5")
	for _, name := range []string{"Y0", "Y1", "Y2", "Y3", "Y4"} {
		id := f.container(name, a, "U1", running)
		f.soon(id, "Started")
	}
	f.drop(all[10:15]...)
	f.eventually()
	f.caughtUp()
	for _, id := range all[:10] {
		if got := f.told(id); len(got) != 3 || !strings.HasPrefix(got[2], "Died/") || got[2] == "Died/unknown" {
			f.t.Errorf("told of %s: %v", short(id), got)
		}
	}
	f.wantsAll(all[10:15], "Created", "Started", "Died/unknown", "Removed")
	if n := f.log.messages()["trouble (store_degraded)"]; n != 1 {
		f.t.Errorf("%d lines say that the state can't be written", n)
	}
}

// writtenByItself checks that all that is pending is written without a further
// change, and then that a killed agent's successor has nothing to tell.
func (f *field) writtenByItself() {
	f.t.Helper()
	f.until("the state to be written", func() bool { return !f.condition("store_degraded") })
	f.recoveredOnce("store_degraded")
	f.caughtUp()
	before := len(f.all())
	f.crash()
	if n := len(f.all()); n != before {
		f.t.Errorf("of %d events %d were not written", before, before-n)
	}
	f.start()
	f.ready()
	f.relists(3)
	f.queueEmpty()
	f.caughtUp()
	for _, ev := range f.all()[before:] {
		if ev.EntityID() != "" {
			f.t.Errorf("told after the restart: %s", describe(ev))
		}
	}
}

// TestC54_DiskFullInTheMiddleOfTheRun: what happens is told from memory, and
// written when there is room again.
func TestC54_DiskFullInTheMiddleOfTheRun(t *testing.T) {
	t.Parallel()
	disk := storetest.SmallDisk(t, "2m")
	f := newField(t, func(s *setup) { s.agent.StateDir = filepath.Join(disk, "state") })
	all := f.manyPods(20)
	f.start()
	f.ready()
	f.eventually()
	f.queueEmpty()
	free := storetest.Fill(f.t, disk)
	f.changesOnAFullDisk(all)
	f.neverUnready()
	free()
	f.writtenByItself()
	f.finish()
}

// TestC54Variation_DiskFullAtTheStart: an agent that has a state starts on a
// full disk and goes on from memory; one that has none says at once that it
// can't begin.
func TestC54Variation_DiskFullAtTheStart(t *testing.T) {
	t.Parallel()
	disk := storetest.SmallDisk(t, "2m")
	f := newField(t, func(s *setup) { s.agent.StateDir = filepath.Join(disk, "state") })
	all := f.manyPods(20)
	f.start()
	f.ready()
	f.eventually()
	f.queueEmpty()
	f.stop()
	free := storetest.Fill(f.t, disk)

	fresh := f.cfg
	fresh.StateDir = filepath.Join(disk, "other")
	began := time.Now()
	if g, err := pleg.New(fresh); err == nil || !strings.Contains(err.Error(), fresh.StateDir) {
		t.Errorf("a new state on a full disk: %v after %v", err, time.Since(began))
		if err == nil {
			f.must(g.Close())
		}
	}
	f.start()
	f.ready()
	f.changesOnAFullDisk(all)
	free()
	f.writtenByItself()
	f.finish()
}
