package field_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/plegd/plegd/internal/simruntime"
)

// TestC12_StatusThatHangsOnAndOff: every second ContainerStatus of X answers
// after three timeouts and ignores cancellation, while events ask for it all the
// time, some of them for an exec session's id.
func TestC12_StatusThatHangsOnAndOff(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	f := newField(t, func(s *setup) { s.agent.RPCTimeout, s.agent.RelistPeriodMax = timeout, periodP })
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	var others, sandboxes []string
	for i := range 20 {
		uid := fmt.Sprintf("N%d", i)
		sandboxes = append(sandboxes, f.sandbox("s"+uid, uid, "10.0.1."+fmt.Sprint(i)))
		others = append(others, f.container("c"+uid, sandboxes[i], uid, running))
	}
	f.start()
	f.ready()
	f.soon(x, "Started")
	f.streamUp()
	f.settled()
	stuck := f.rule(simruntime.Rule{Method: "ContainerStatus", ID: x, Every: 2, Delay: 3 * timeout, IgnoreCancel: true})
	from := len(f.statusCalls(x))
	before := f.lists()
	for n := 0; f.lists() < before+size(60, 300); n++ {
		f.event(evStarted, x, a, with()) // says nothing of X, so that it has to be asked for
		f.event(evStopped, long("e1"), a)
		if n == 5 {
			at := f.lists()
			f.exits(others[7], 5) // by a list alone
			f.soon(others[7], "Died/5")
			if n := f.lists() - at; n > 6 { // G7
				t.Errorf("a neighbour's end was told after %d relists", n)
			}
		}
		time.Sleep(150 * time.Millisecond)
	}
	stuck.Remove()
	calls := f.statusCalls(x)[from:]
	if n := simruntime.MaxOverlap(calls); n > 1 {
		t.Errorf("%d calls for one container at once", n)
	}
	f.eventually()
	f.queueEmpty()
	f.wants(x, "Created", "Started")
	f.wants(long("e1"))
	for i, id := range others {
		if i != 7 {
			f.wants(id, "Created", "Started")
		}
	}
	f.logsOf("trouble (inspection_failing)", 30) // on and off for as long as it lasts; the product spaces them
	f.logsOf("recovered (inspection_failing)", 30)
	f.logsOf("trouble (relist_failing)", size(2, 10)) // a busy machine may need more than the timeout now and then
	f.logsOf("recovered (relist_failing)", size(2, 10))
	f.neverUnready()
	f.finish()
}

// TestC12Variation_SandboxStatusThatFailsOnAndOff: the sandbox's own status
// instead, failing at once with an error rather than hanging, and events that
// claim the removal of an id that was never there. Whether that is told is
// debatable: DELETED is good evidence that it was there once, so its life is told,
// but only once.
func TestC12Variation_SandboxStatusThatFailsOnAndOff(t *testing.T) {
	t.Parallel()
	f := newField(t, func(s *setup) { s.agent.RPCTimeout = 300 * time.Millisecond }) // for which DeadlineExceeded rests
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	_, y := f.pod("other")
	f.start()
	f.streamUp()
	f.soon(x, "Started")
	f.settled()
	f.rule(simruntime.Rule{Method: "PodSandboxStatus", ID: a, Every: 2, Code: codes.DeadlineExceeded})
	for range 30 {
		f.event(evStopped, a, a, bare) // a claim without a status: it has to be asked
		f.event(evDeleted, long("e2"), a)
		time.Sleep(50 * time.Millisecond)
	}
	f.queueEmpty()
	f.wants(a, "Created", "Ready")
	f.wants(x, "Created", "Started")
	f.wants(y, "Created", "Started")
	f.wants(long("e2"), "Created", "Removed")
	f.logsOf("trouble (inspection_failing)", 5)
	f.logsOf("recovered (inspection_failing)", 5)
	f.neverUnready()
	f.finish()
}

// TestC14_RuntimeThatLearnsToTellEvents: Unimplemented, then the runtime is
// upgraded in place. Whether it is probed without a loss of the connection is
// debatable: plegd does, every five minutes.
func TestC14_RuntimeThatLearnsToTellEvents(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	old := f.noStream()
	f.start()
	f.ready()
	f.soon(x, "Started")
	before := f.lists()
	f.until("20 periods", func() bool { return f.lists() >= before+20 })
	if s := f.periodState(); s != "polling" {
		t.Errorf("without a stream the period is %s", s)
	}
	if n := f.rt.CallStats("GetContainerEvents").Started; n > 3 {
		t.Errorf("%d tries to subscribe", n)
	}
	if n := f.log.messages()["trouble (stream_down)"]; n != 1 {
		t.Errorf("%d lines about the stream", n)
	}
	f.neverUnready()

	f.rt.Down()
	old.Remove()
	f.rt.Up()
	f.trustedJust()
	at := f.lists()
	f.must(f.rt.ExitContainer(x, 0, ""))
	f.soon(x, "Died/0")
	if n := f.lists() - at; n > 0 {
		t.Errorf("it took %d lists", n)
	}
	f.byStream(x, 3)
	f.recoveredOnce("stream_down")
	f.finish()
}

// TestC14Variation_RuntimeThatForgetsToTellEvents: the other way round: a
// trusted stream, then the runtime comes back as one that ends each stream at
// once without an error, as CRI-O with events off. Then relists do at P, and
// what happened in the meantime is found.
func TestC14Variation_RuntimeThatForgetsToTellEvents(t *testing.T) {
	t.Parallel()
	f := newField(t)
	_, x := f.pod("a")
	_, y := f.pod("b")
	f.start()
	f.trusted()
	f.settled()
	f.rt.Down()
	f.rule(simruntime.Rule{Method: "GetContainerEvents", EOF: true})
	f.must(f.rt.ExitContainer(x, 3, ""))
	f.rt.Up()
	f.soon(x, "Died/3")
	f.until("the stream to count as unsupported", func() bool { return f.g().Status().Stream.State == "unsupported" })
	f.exits(y, 4)
	f.quiet()
	f.soon(y, "Died/4")
	if s := f.g().Status().Relist; s.State != "polling" || s.Period > periodP.Seconds() {
		t.Errorf("the period: %+v", s)
	}
	f.neverUnready()
	f.finish()
}

// TestC15_RuntimeRestartsAgainAndAgain: short outages with the socket gone cause
// no pod event and no unreadiness, and trust comes back by itself each time; an
// outage longer than H is told of and over by itself.
func TestC15_RuntimeRestartsAgainAndAgain(t *testing.T) {
	t.Parallel()
	outages := size(3, 20)
	f := newField(t, func(s *setup) { s.agent.RelistThreshold = 8 * time.Second; s.agent.RelistPeriodMax = 4 * periodP })
	for i := range 30 {
		uid := fmt.Sprintf("N%d", i)
		f.container("c"+uid, f.sandbox("s"+uid, uid, "10.0.1."+fmt.Sprint(i)), uid, running)
	}
	f.start()
	f.trusted()
	f.eventually()
	f.caughtUp()
	f.settled()
	told := len(f.all())
	for n := range outages {
		f.rt.Down()
		f.until("the period to shrink", func() bool { return f.periodState() == "polling" })
		before := f.lists()
		time.Sleep(400 * time.Millisecond)
		f.rt.Up()
		f.streamUp()
		f.until("a relist after the new subscription", func() bool { return f.lists() > before })
		f.trusted()
		if s := f.g().Status().Stream; s.Reconnects != uint64(n+1) {
			t.Errorf("after %d outages: %d reconnections", n+1, s.Reconnects)
		}
	}
	f.neverUnready()
	f.rt.Down()
	f.until("unreadiness", func() bool { return !f.g().Health().Ready })
	if reason := health(f.g().Health()); !strings.Contains(reason, f.path) || !strings.Contains(reason, "no such file") {
		t.Errorf("the reason: %s", reason)
	}
	f.rt.Up()
	f.ready()
	f.trusted()
	f.caughtUp()
	for _, ev := range f.all()[told:] {
		t.Errorf("told of a restart that changed nothing: %s", describe(ev))
	}
	for _, c := range []string{"stream_down", "relist_failing", "relist_too_old"} {
		f.logsOf("trouble ("+c+")", outages+1)
		f.logsOf("recovered ("+c+")", outages+1)
	}
	f.finish()
}

// TestC15Variation_StreamAndRuntimeAreCutInOtherWays: streams that end while the
// connection stays, with every kind of end; then the runtime killed, its socket
// file left behind and refusing, while a container dies.
func TestC15Variation_StreamAndRuntimeAreCutInOtherWays(t *testing.T) {
	t.Parallel()
	f := newField(t, func(s *setup) { s.agent.RelistPeriodMax = 4 * periodP })
	sandbox, x := f.pod("a")
	_, y := f.pod("b")
	f.start()
	f.trusted()
	f.eventually()
	f.settled()
	ends := []codes.Code{codes.Unavailable, codes.OK, codes.Internal}
	for n, code := range ends {
		// A stream that has told something, since one that ends without an error
		// and never did is one that the runtime doesn't have.
		events := f.g().Status().Stream.Events
		f.event(evStarted, x, sandbox)
		f.until("the event", func() bool { return f.g().Status().Stream.Events > events })
		f.rt.EndStreams(code)
		f.until("a new stream", func() bool { s := f.g().Status().Stream; return s.State == "up" && s.Reconnects == uint64(n+1) })
		f.trusted()
	}
	f.rt.Kill()
	f.must(f.rt.ExitContainer(x, 6, ""))
	f.until("a refused connection", func() bool { return strings.Contains(health(f.g().Health()), "refused") })
	f.rt.Up()
	f.soon(x, "Died/6")
	f.trusted()
	f.must(f.rt.ExitContainer(y, 0, ""))
	f.soon(y, "Died/0")
	f.byStream(y, 3)
	for _, c := range []string{"stream_down", "relist_failing"} {
		f.logsOf("trouble ("+c+")", len(ends)+1)
		f.logsOf("recovered ("+c+")", len(ends)+1)
	}
	f.neverUnready()
	f.finish()
}
