package pleg_test

import (
	"testing"
	"testing/synctest"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// TestPeriodStretchesAndFallsBack: the period grows to the longest while the
// stream is good, falls to its base at once when a relist finds what the
// stream dropped, and needs a longer clean run after that. In virtual time.
func TestPeriodStretchesAndFallsBack(t *testing.T) {
	t.Parallel()
	inBubble(t, simruntime.Config{Seed: 14}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
		_, container := pod(t, rt, "a")
		cfg.RelistPeriod, cfg.RelistPeriodMax = time.Second, 16*time.Second
		a := startAgent(t, cfg, nil)
		time.Sleep(2 * time.Minute)
		period := func() (float64, string) { s := a.g.Status().Relist; return s.Period, s.State }
		if p, state := period(); p != 16 || state != "stretched" {
			t.Fatalf("after two clean minutes: %v s, %s", p, state)
		}
		// A busy stream is no reason to shrink.
		w, err := simruntime.NewWorkload(rt, simruntime.WorkloadConfig{Seed: 14, Pods: 5})
		must(t, err)
		for range 120 {
			_, err := w.Step()
			must(t, err)
			time.Sleep(500 * time.Millisecond)
		}
		if p, state := period(); p != 16 {
			t.Fatalf("under churn: %v s, %s", p, state)
		}
		// The end of a container is dropped: the next relist finds it, and the
		// one after calls it a miss.
		drop := simtest.Rule(t, rt, simruntime.Rule{Method: simruntime.MethodEvent, ID: container, Drop: true})
		must(t, rt.ExitContainer(container, 9, ""))
		time.Sleep(17 * time.Second)
		if got := told(a.read())[container]; got[len(got)-1] != "ContainerDied/9" {
			t.Fatalf("told %v one period after the end", got)
		}
		drop.Remove()
		shrunk := time.Duration(0)
		for ; shrunk < time.Minute; shrunk += time.Second {
			if p, _ := period(); p == 1 {
				break
			}
			time.Sleep(time.Second)
		}
		if shrunk > 20*time.Second {
			p, state := period()
			t.Fatalf("a miss is not noticed: %v s, %s", p, state)
		}
		time.Sleep(2 * time.Minute)
		if p, state := period(); p != 16 {
			t.Errorf("trust is not earned back: %v s, %s", p, state)
		}
		// The end of the stream is doubt as well.
		rt.EndStreams(14)
		synctest.Wait()
		time.Sleep(time.Millisecond)
		if p, state := period(); p != 1 {
			t.Errorf("when the stream has ended: %v s, %s", p, state)
		}
		a.finish()
	})
}
