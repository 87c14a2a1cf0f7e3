package pleg_test

import (
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// TestFailedStartIsToldSoon: no event tells of a start that fails. It is told as soon as
// GenericPLEG would tell it all the same, however long the period is.
func TestFailedStartIsToldSoon(t *testing.T) {
	t.Parallel()
	inBubble(t, simruntime.Config{Seed: 7}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
		sandbox, _ := pod(t, rt, "a")
		a := startAgent(t, cfg, nil)
		time.Sleep(time.Hour)
		if s := a.g.Status().Relist; s.State != "stretched" {
			t.Fatalf("period: %+v", s)
		}
		a.read()

		began := time.Now()
		id, err := rt.CreateContainer(sandbox, simruntime.ContainerSpec{Name: "bad", FailStart: "no such file"})
		must(t, err)
		if err := rt.StartContainer(id); err == nil {
			t.Fatal("it has started")
		}
		time.Sleep(3 * time.Second)
		a.read()
		died := a.events[len(a.events)-1]
		if died.Type != store.ContainerDied || died.Container.ID != id || died.ExitCode != 128 {
			t.Fatalf("after %v the last event is %+v", time.Since(began), died)
		}
		if d := time.Duration(died.ObservedAt - began.UnixNano()); d > 2*time.Second {
			t.Errorf("told after %v", d)
		}

		// One that is started late by a second is no reason to forget how long the period is.
		id, err = rt.CreateContainer(sandbox, simruntime.ContainerSpec{Name: "slow"})
		must(t, err)
		time.Sleep(1500 * time.Millisecond)
		must(t, rt.StartContainer(id))
		time.Sleep(time.Second)
		if s := a.g.Status().Relist; s.State != "stretched" {
			t.Errorf("period: %+v", s)
		}
	})
}
