package pleg_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// TestStreamOfAnUnknownRuntimeIsNotOpened: containerd 1.7 gives each event to
// one subscriber only (containerd#7318). While Version is not answered, plegd
// doesn't subscribe, and asks again soon; once it is, it keeps away for good.
func TestStreamOfAnUnknownRuntimeIsNotOpened(t *testing.T) {
	t.Parallel()
	profile := simruntime.Profile{Name: "containerd", Version: "v1.7.27", NoStreamingLists: true}
	inBubble(t, simruntime.Config{Seed: 44, Profile: profile}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
		slow := simtest.Rule(t, rt, simruntime.Rule{Method: "Version", Skip: 1, Code: codes.DeadlineExceeded}) // the first lets the sources begin
		a := startAgent(t, cfg, nil)
		for range 10 {
			time.Sleep(10 * time.Second)
			if s := a.g.Status().Stream; s.State != "down" || s.Error == "" {
				t.Fatalf("while Version fails: %+v", s)
			}
		}
		slow.Remove()
		time.Sleep(15 * time.Second)
		if s := a.g.Status().Stream; s.State != "unsupported" {
			t.Errorf("once it is known: %+v", s)
		}
		hung := simtest.Rule(t, rt, simruntime.Rule{Method: "Version", Hang: true})
		rt.Restart()
		time.Sleep(10 * time.Minute) // connections, and tries every five minutes
		hung.Remove()
		synctest.Wait()
		time.Sleep(10 * time.Minute)
		if n := rt.CallStats("GetContainerEvents").Started; n != 0 {
			t.Errorf("subscribed %d times to a runtime that shares its events out", n)
		}
		if h := a.g.Health(); !h.Ready {
			t.Errorf("%+v", h)
		}
		a.finish()
	})
}
