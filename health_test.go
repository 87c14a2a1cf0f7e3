package pleg_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// TestReadyWhileTheStateCanNotBeWritten: readers are told from memory, so what
// is served is as good as ever, for however long; health says what is wrong.
func TestReadyWhileTheStateCanNotBeWritten(t *testing.T) {
	t.Parallel()
	for _, mode := range pleg.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			inBubble(t, simruntime.Config{Seed: 41}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
				var faulty *storetest.Faulty
				cfg.Mode, cfg.RelistPeriodMax = mode, 4*time.Second
				a := startAgent(t, pleg.WithStore(cfg, func(s store.Store) store.Store {
					faulty = storetest.NewFaulty(s)
					return faulty
				}), nil)
				time.Sleep(time.Minute)
				if h := a.g.Health(); !h.Ready {
					t.Fatalf("%+v", h)
				}
				faulty.FailBefore(-1, fmt.Errorf("state file x: %w", store.ErrFull))
				_, container := pod(t, rt, "new")
				time.Sleep(20 * time.Minute)
				h, state := a.g.Health(), a.check(pleg.CheckState)
				if !h.Ready || !h.Live || state.OK || !strings.Contains(state.Reason, store.ErrFull.Error()) {
					t.Errorf("after twenty minutes: %+v", h)
				}
				if cached(a.g)[container] != "running" {
					t.Error("readers don't see what happened since")
				}
				faulty.FailBefore(0, nil)
				time.Sleep(time.Minute)
				if h := a.g.Health(); !h.Ready || !a.check(pleg.CheckState).OK || cached(a.g)[container] != "running" {
					t.Errorf("when it can be written again: %+v", h)
				}
				a.finish()
			})
		})
	}
}

// TestReadyWhenAStretchedPeriodIsCutShort: a runtime that goes away after four
// minutes of a period of five was relisted as promised, so the threshold runs
// from the end of that period, though the period has shrunk by then.
func TestReadyWhenAStretchedPeriodIsCutShort(t *testing.T) {
	t.Parallel()
	inBubble(t, simruntime.Config{Seed: 42}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
		pod(t, rt, "a")
		a := startAgent(t, cfg, nil)
		time.Sleep(time.Hour)
		stretched := a.g.Status().Relist
		if stretched.State != "stretched" {
			t.Fatalf("%+v", stretched)
		}
		for lists := rt.CallStats("StreamPodSandboxes").Started; rt.CallStats("StreamPodSandboxes").Started == lists; {
			time.Sleep(time.Second)
		}
		time.Sleep(4 * time.Minute)
		rt.Down()
		synctest.Wait()
		time.Sleep(30 * time.Second)
		if h, s := a.g.Health(), a.g.Status().Relist; !h.Ready || s.Failures == 0 || s.Period >= stretched.Period {
			t.Errorf("4m30s after the last relist: %+v, %+v", h, s)
		}
		time.Sleep(3 * time.Minute)
		if h := a.g.Health(); !h.Ready {
			t.Errorf("7m30s after the last relist, 8m are allowed: %+v", h)
		}
		time.Sleep(time.Minute)
		if h := a.g.Health(); h.Ready {
			t.Errorf("8m30s after the last relist: %+v", h)
		}
		rt.Up()
		time.Sleep(15 * time.Second)
		if h := a.g.Health(); !h.Ready {
			t.Errorf("when it is back: %+v", h)
		}
		time.Sleep(time.Minute)
		a.finish()
	})
}

// TestRunEndsWhenTheStoreRefuses: a batch that is refused as such was made from
// a state that can't be trusted, and trying again would never help.
func TestRunEndsWhenTheStoreRefuses(t *testing.T) {
	t.Parallel()
	inBubble(t, simruntime.Config{Seed: 43}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
		var faulty *storetest.Faulty
		a := startAgent(t, pleg.WithStore(cfg, func(s store.Store) store.Store {
			faulty = storetest.NewFaulty(s)
			return faulty
		}), nil)
		time.Sleep(10 * time.Second)
		at := a.g.Position()
		faulty.FailBefore(-1, fmt.Errorf("state file x: %w", store.ErrBatch))
		pod(t, rt, "a")
		if err := <-a.done; !errors.Is(err, store.ErrBatch) {
			t.Errorf("run: %v", err)
		}
		if _, err := a.sub.Next(t.Context()); !errors.Is(err, pleg.ErrStopped) || a.g.Position() != at {
			t.Errorf("a reader gets %v, position %v after %v", err, a.g.Position(), at)
		}
	})
}
