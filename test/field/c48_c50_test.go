package field_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/timestamps"
)

// steppedClock is the machine's clock with steps: the wall clock's and, for a
// machine that slept without its timers, the monotonic clock's.
type steppedClock struct{ wall, mono atomic.Int64 }

func (c *steppedClock) clock() timestamps.Clock {
	machine := sysclock.New()
	return timestamps.Clock{
		Wall:     func() time.Time { return machine.Wall().Add(time.Duration(c.wall.Load())) },
		Mono:     func() time.Duration { return machine.Mono() + time.Duration(c.mono.Load()) },
		NewTimer: machine.NewTimer,
	}
}

// TestC48_WallClockJumps: forward by an hour, from 1970 to today, and with a
// sleep in which no timer fired. Ages are
// monotonic; the sleep counts, and the list that follows it is at once.
func TestC48_WallClockJumps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		first      time.Duration // of the wall clock, against the machine's
		jump       time.Duration
		mono       time.Duration
		atMostOnce bool // may be not ready once
	}{
		{"an hour ahead", 0, time.Hour, 0, false},
		{"out of 1970", -time.Since(time.Unix(1000, 0)), time.Since(time.Unix(1000, 0)), 0, false},
		{"after a sleep", 0, time.Hour, size(20*time.Second, time.Hour), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var c steppedClock
			c.wall.Store(int64(tt.first))
			// The runtime reads the same wall clock.
			wall := func() time.Time { return time.Now().Add(time.Duration(c.wall.Load())) }
			f := newField(t, func(s *setup) { s.agent.Clock, s.sim.Wall = c.clock(), wall })
			sandbox, x := f.pod("a")
			_, y := f.pod("b")
			f.start()
			f.trusted()
			f.settled()
			before := f.lists()
			c.wall.Add(int64(tt.jump))
			c.mono.Add(int64(tt.mono))
			f.until("a relist", func() bool { return f.lists() > before && f.metric("relist_age_seconds") < 5 })
			f.must(f.rt.ExitContainer(x, 0, ""))
			f.soon(x, "Died/0")
			f.quiet()
			if v, _ := f.shown(x); v.Finished == 0 {
				t.Errorf("shown: %+v", v)
			}
			f.until("readiness as sampled", func() bool { all := f.flips(); return all[len(all)-1].ready })
			ups, downs := 0, 0
			for _, x := range f.flips() {
				if x.ready {
					ups++
				} else {
					downs++
				}
			}
			if downs > 0 && !tt.atMostOnce || downs > 1 || ups != downs+1 {
				t.Errorf("readiness: %+v", f.flips())
			}
			// What was written with the old clock neither blocks nor expires.
			f.must(f.rt.RemovePodSandbox(sandbox))
			f.soon(sandbox, "Removed")
			f.stop()
			f.start()
			f.ready()
			f.must(f.rt.ExitContainer(y, 3, ""))
			f.soon(y, "Died/3")
			f.quiet()
			f.wants(x, "Created", "Started", "Died/0", "Removed")
			f.wants(y, "Created", "Started", "Died/3")
			if oldest := f.g().Oldest(); oldest.Seq != 0 {
				t.Errorf("entries have expired: the oldest position is %v", oldest)
			}
			f.finish()
		})
	}
}

// TestC48Variation_WallClockJumpsBack: an hour back, and the runtime's own clock
// alone by a day each way, so that its events seem to be of the future and of
// long ago.
func TestC48Variation_WallClockJumpsBack(t *testing.T) {
	t.Parallel()
	var c steppedClock
	var apart atomic.Int64
	wall := func() time.Time { return time.Now().Add(time.Duration(c.wall.Load() + apart.Load())) }
	f := newField(t, func(s *setup) { s.agent.Clock, s.sim.Wall = c.clock(), wall })
	f.pod("a")
	f.start()
	f.trusted()
	f.settled()
	var last string
	for i, step := range []struct{ both, runtime time.Duration }{
		{both: -time.Hour}, {runtime: 24 * time.Hour}, {runtime: -24 * time.Hour},
	} {
		c.wall.Add(int64(step.both))
		apart.Store(int64(step.runtime))
		sandbox, x := f.pod(string(rune('b' + i)))
		f.soon(x, "Started")
		f.must(f.rt.ExitContainer(x, int32(i), ""))
		f.must(f.rt.RemovePodSandbox(sandbox))
		f.soon(sandbox, "Removed")
		f.soon(x, "Removed")
		if got := f.told(x); len(got) != 4 || got[2] != []string{"Died/0", "Died/1", "Died/2"}[i] {
			t.Errorf("after step %d: told %v", i, got)
		}
		last = x
	}
	f.quiet()
	f.neverUnready()
	f.never(last, "regressed")
	f.finish()
}

// TestC50_ChangesWhileTheAgentIsDown come out by the first relist, each once;
// the runtime's replay of them adds nothing.
func TestC50_ChangesWhileTheAgentIsDown(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	w, x, y := f.container("W", a, "U1", running), f.container("X", a, "U1", running), f.container("Y", a, "U1", running)
	f.start()
	f.trusted()
	f.soon(y, "Started")
	f.eventually()
	f.stop()
	f.noSubscriber()

	f.exits(x, 3)
	f.event(evStopped, x, a)
	f.drop(y)
	f.event(evDeleted, y, a)
	z := f.container("Z", a, "U1", running)
	f.event(evStarted, z, a)
	before, events := f.lists(), len(f.all())
	f.start()
	f.soon(x, "Died/3")
	f.soon(y, "Removed")
	f.soon(z, "Started")
	if n := f.lists() - before; n > 3 {
		t.Errorf("it took %d lists", n)
	}
	f.settled()
	f.quiet()
	f.relists(2)
	f.wants(w, "Created", "Started")
	f.wants(x, "Created", "Started", "Died/3")
	f.wants(y, "Created", "Started", "Died/unknown", "Removed")
	f.wants(z, "Created", "Started")
	f.wants(a, "Created", "Ready")
	if ev := f.event1(y, "ContainerDied"); !ev.Inferred {
		t.Errorf("nobody saw it: %s", describe(ev))
	}
	for _, ev := range f.all()[events:] {
		if id := ev.EntityID(); id == w || id == a {
			t.Errorf("nothing has happened: %s", describe(ev))
		}
	}
	if s := f.rt.EventStats(); s.Replayed < 3 {
		t.Errorf("the runtime replayed %d events", s.Replayed)
	}
	f.finish()
}

// noSubscriber waits until the runtime has noticed that nobody listens, so that
// it keeps what happens for who comes next.
func (f *field) noSubscriber() {
	f.t.Helper()
	f.rt.EndStreams(0)
	f.until("no subscriber", func() bool { return f.rt.EventStats().Subscribers == 0 })
}

// TestC50Variation_PodBeginsAnewWhileTheAgentIsDown: the agent was killed, not
// stopped; the pod's sandbox was replaced, with its containers; and the agent
// that comes back polls only.
func TestC50Variation_PodBeginsAnewWhileTheAgentIsDown(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	still := f.sandbox("S", "U2", "10.0.0.6")
	s := f.container("s", still, "U2", exited, code(7))
	f.start()
	f.trusted()
	f.soon(x, "Started")
	f.soon(s, "Died/7")
	f.eventually()
	f.crash()

	f.drop(x)
	f.must(f.rt.DropSandbox(a))
	b := f.sandbox("B", "U1", "10.0.0.9", func(s *runtimeapi.PodSandboxStatus) { s.Metadata.Attempt = 1 })
	y := f.container("Y", b, "U1", running, attempt(1))
	f.cfg.Mode = pleg.ModeGeneric
	f.start()
	f.ready()
	f.settled()
	f.quiet()
	f.soon(y, "Started")
	f.wants(x, "Created", "Started", "Died/unknown", "Removed")
	f.wants(a, "Created", "Ready", "NotReady", "Removed")
	f.wants(s, "Created", "Started", "Died/7")
	f.wants(still, "Created", "Ready")
	if p := f.podOf("U1"); p.IP != "10.0.0.9" || len(p.Sandboxes) != 1 || len(p.Containers) != 1 {
		t.Errorf("the pod: %+v", p)
	}
	f.finish()
}

// TestC50Variation_AgentKilledUnderChurn: the agent is a process of its own, and
// SIGKILL ends it in the midst of pods that come and go, again and again; some
// go while it is down. All of it is told, each step once, and what was told
// once is never told under another number.
func TestC50Variation_AgentKilledUnderChurn(t *testing.T) {
	t.Parallel()
	f := newField(t)
	var stay, gone [][2]string
	for n := range size(3, 20) {
		p := f.startProcess()
		told := len(f.all())
		f.until("the agent to be killed", func() bool {
			s, c := f.pod(fmt.Sprintf("p%d-%d", n, len(stay)+len(gone)))
			f.must(f.rt.ExitContainer(c, 3, ""))
			if (len(stay)+len(gone))%2 == 0 {
				stay = append(stay, [2]string{s, c})
			} else {
				gone = append(gone, [2]string{s, c})
			}
			return len(f.all()) > told+40
		})
		if n%2 == 0 {
			f.must(f.rt.RemovePodSandbox(gone[len(gone)-1][0])) // on its way to the agent
		}
		p.kill()
		for i := range gone {
			if err := f.rt.RemovePodSandbox(gone[i][0]); err != nil { // none is an error, as in the CRI
				t.Error(err)
			}
		}
	}
	f.start()
	f.ready()
	f.settled()
	f.eventually()
	for _, ids := range stay {
		f.wants(ids[1], "Created", "Started", "Died/3")
		f.wants(ids[0], "Created", "Ready")
	}
	known := 0
	for _, ids := range gone {
		// Who was gone before the next agent came leaves no code, or no trace.
		switch got := strings.Join(f.told(ids[1]), " "); got {
		case "Created Started Died/3 Removed":
			known++
		case "", "Created Removed", "Created Died/unknown Removed", "Created Started Died/unknown Removed":
		default:
			t.Errorf("told of a container that is gone: %s", got)
		}
	}
	if known == 0 {
		t.Errorf("none of %d deaths was told with its code", len(gone))
	}
	f.finish()
}
