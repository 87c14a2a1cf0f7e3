package simruntime_test

import (
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	sim "github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// Measured: SIGTERM ends CRI-O's stream with a clean EOF and containerd's with
// Unavailable; SIGKILL both with Unavailable.
func TestHowStreamsEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		profile sim.Profile
		end     func(*sim.Runtime)
		clean   bool
	}{
		"CRI-O, SIGTERM":          {sim.CRIO, (*sim.Runtime).Down, true},
		"CRI-O, SIGKILL":          {sim.CRIO, (*sim.Runtime).Kill, false},
		"CRI-O, frozen, SIGTERM":  {sim.CRIO, func(rt *sim.Runtime) { rt.Freeze(); rt.Down() }, false},
		"containerd 2.4, SIGTERM": {sim.Containerd24, (*sim.Runtime).Down, false},
		"containerd 1.7, SIGTERM": {sim.Containerd17, (*sim.Runtime).Down, false},
		"containerd 2.4, SIGKILL": {sim.Containerd24, (*sim.Runtime).Kill, false},
	} {
		t.Run(name, func(t *testing.T) {
			rt, path := simtest.Start(t, sim.Config{Profile: tc.profile})
			conn := simtest.Dial(t, path)
			r := subscribe(t, conn)
			waitSubscribers(t, rt, 1)
			tc.end(rt)
			switch err := r.end(); {
			case tc.clean && !errors.Is(err, io.EOF):
				t.Errorf("ended with %v, want EOF", err)
			case !tc.clean:
				wantCode(t, err, codes.Unavailable)
			}
			rt.Up()
			version(t, conn)
		})
	}
}

// A CRI-O that goes down waits for nobody who doesn't read, and lets go of what
// hangs.
func TestCleanEndWaitsForNobody(t *testing.T) {
	inBubble(t, sim.Config{Profile: sim.CRIO}, func(t *testing.T, rt *sim.Runtime, c client, _ func() *reader) {
		stopReading(t, rt, c)
		for i := range 10 {
			rt.InjectEvent(big(i))
		}
		simtest.Rule(t, rt, sim.Rule{Method: "Status", Hang: true, IgnoreCancel: true})
		hung := make(chan error, 1)
		go func() {
			_, err := c.Status(t.Context(), &runtimeapi.StatusRequest{})
			hung <- err
		}()
		synctest.Wait()
		start := time.Now()
		rt.Down()
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %v", took)
		}
		wantCode(t, <-hung, codes.Unavailable)
	})
}

// On one socket path a runtime is upgraded and downgraded, and finds its pods.
func TestUpgradeInPlace(t *testing.T) {
	rt, path := simtest.Start(t, sim.Config{Profile: sim.Containerd16})
	conn := simtest.Dial(t, path)
	c := runtimeapi.NewRuntimeServiceClient(conn)
	_, app := pod(t, rt, "u1")
	if err := rt.SetProfile(sim.Containerd24); !errors.Is(err, sim.ErrState) {
		t.Errorf("while up: %v", err)
	}
	for _, p := range []sim.Profile{sim.Containerd24, sim.CRIO, sim.Containerd17, sim.CRIONoEvents, sim.Containerd16} {
		rt.Down()
		check(t, rt.SetProfile(p))
		rt.Up()
		version(t, conn)
		v := must(c.Version(t.Context(), &runtimeapi.VersionRequest{}))
		if v.RuntimeName != p.Name || v.RuntimeVersion != p.Version || rt.Profile() != p {
			t.Errorf("version: %v, want %s %s", v, p.Name, p.Version)
		}
		if st := must(c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: app})).Status; st.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("%s %s: %v", p.Name, p.Version, st)
		}
		switch r := subscribe(t, conn); {
		case p.NoEvents:
			wantCode(t, r.end(), codes.Unimplemented)
		case p.EventsOff:
			if err := r.end(); !errors.Is(err, io.EOF) {
				t.Errorf("ended with %v", err)
			}
		default:
			waitSubscribers(t, rt, 1)
			inject(rt, "x")
			if ev := r.next(); ev.ContainerId != "x" {
				t.Errorf("got %v", ev)
			}
		}
	}
}

// The events of the new runtime take its way.
func TestUpgradeChangesTheQueue(t *testing.T) {
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, _ client, sub func() *reader) {
		rt.Down()
		check(t, rt.SetProfile(sim.CRIO))
		rt.Up()
		r := sub()
		inject(rt, "heard")
		if got := r.read(); !slices.Equal(got, []string{"heard"}) {
			t.Errorf("got %v", got)
		}
		rt.EndStreams(codes.OK)
		inject(rt, "unheard")
		if st := rt.EventStats(); st.Unheard != 1 || st.Waiting != 0 {
			t.Errorf("stats: %+v", st)
		}
	})
}

func TestImpossibleProfiles(t *testing.T) {
	for name, edit := range map[string]func(*sim.Profile){
		"no name":   func(p *sim.Profile) { p.Name = "" },
		"both":      func(p *sim.Profile) { p.NoEvents, p.EventsOff = true, true },
		"queue":     func(p *sim.Profile) { p.Queue = 7 },
		"share":     func(p *sim.Profile) { p.Exit255 = 2 },
		"part":      func(p *sim.Profile) { p.StoppedFirst, p.StartedExited = 0.5, 0.1 },
		"back skew": func(p *sim.Profile) { p.CreatedSkew = -1 },
	} {
		p := sim.CRIO
		edit(&p)
		if _, err := sim.New(sim.Config{Profile: p}); err == nil {
			t.Errorf("%s: made", name)
		}
		rt := simtest.New(t, sim.Config{})
		rt.Down()
		if err := rt.SetProfile(p); err == nil || rt.Profile() != sim.Containerd24 {
			t.Errorf("%s: set, %v", name, err)
		}
	}
}
