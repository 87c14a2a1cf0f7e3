package field_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// seconds turns an event's own time into seconds.
func seconds(ev *simruntime.Event) { simruntime.Seconds(ev) }

// TestC26_SecondsForNanoseconds: status answers stamped in seconds and events in
// nanoseconds, and the other way round. Only order of arrival counts.
func TestC26_SecondsForNanoseconds(t *testing.T) {
	t.Parallel()
	nothing := func(*simruntime.Event) {}
	for _, tt := range []struct {
		name   string
		status func(proto.Message)
		event  func(*simruntime.Event)
		odd    bool // in events, whose times are looked at
	}{
		{"statuses in seconds", simruntime.Seconds, nothing, false},
		{"events in seconds", nil, seconds, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			if tt.status != nil {
				f.rule(simruntime.Rule{Method: "PodSandboxStatus", Edit: tt.status})
			}
			a := f.sandbox("A", "U1", "10.0.0.5")
			x := f.container("X", a, "U1", running)
			f.start()
			f.trustedJust()
			f.soon(x, "Started")
			f.settled()
			f.exits(x, 4)
			before := f.lists()
			f.event(evStopped, x, a, tt.event)
			f.soon(x, "Died/4")
			y := f.container("Y", a, "U1", running)
			f.event(evStarted, y, a, tt.event)
			f.soon(y, "Started")
			if n := f.lists() - before; n > 1 {
				t.Errorf("the events waited for %d lists", n)
			}
			f.exits(y, 5) // no event
			f.quiet()
			f.wants(x, "Created", "Started", "Died/4")
			f.wants(y, "Created", "Started", "Died/5")
			if n := f.metric("anomalies_total"); (n > 0) != tt.odd {
				t.Errorf("%v implausible times are counted", n)
			}
			f.finish()
		})
	}
}

// TestC26Variation_TimesOfOtherKinds: zero, negative, milliseconds, a year far
// ahead, and the largest number there is; and a status whose times are in
// seconds. None moves what is believed, each kind is counted.
func TestC26Variation_TimesOfOtherKinds(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	f.start()
	f.trustedJust()
	f.soon(x, "Started")
	f.settled()
	now := time.Now()
	var ids []string
	for i, at := range []int64{0, -now.UnixNano(), now.UnixMilli(), now.AddDate(50, 0, 0).UnixNano(), math.MaxInt64, math.MinInt64} {
		y := f.container(fmt.Sprintf("Y%d", i), a, "U1", running)
		f.event(evStarted, y, a, func(ev *simruntime.Event) { ev.CreatedAt = at })
		f.soon(y, "Started")
		f.exits(y, int32(i+1))
		f.event(evStopped, y, a, func(ev *simruntime.Event) { ev.CreatedAt = at })
		f.soon(y, fmt.Sprintf("Died/%d", i+1))
		ids = append(ids, y)
	}
	if n := f.metric("anomalies_total"); n < 6 {
		t.Errorf("%v implausible times are counted", n)
	}
	f.exits(x, 9) // no event: the list is not held up by times that seem to lie ahead
	f.quiet()
	f.soon(x, "Died/9")
	for i, y := range ids {
		f.wants(y, "Created", "Started", fmt.Sprintf("Died/%d", i+1))
	}
	f.neverUnready()
	f.finish()
}

// flood sends events of many pods until its context ends.
func (f *field) flood(ctx context.Context, pods int) (sandboxes, containers []string, done chan struct{}) {
	for i := range pods {
		uid := fmt.Sprintf("N%d", i)
		sandboxes = append(sandboxes, f.sandbox("s"+uid, uid, "10.0.1."+fmt.Sprint(i)))
		containers = append(containers, f.container("c"+uid, sandboxes[i], uid, running))
	}
	var events []*simruntime.Event
	for i, id := range containers {
		s, err := f.rt.PodSandboxStatus(sandboxes[i])
		f.must(err)
		c, err := f.rt.ContainerStatus(id)
		f.must(err)
		events = append(events, &simruntime.Event{
			ContainerId: id, ContainerEventType: evStarted, CreatedAt: time.Now().UnixNano(), PodSandboxStatus: s,
			ContainersStatuses: []*runtimeapi.ContainerStatus{c},
		})
	}
	done = make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			f.rt.InjectEvent(events[n%len(events)])
			time.Sleep(time.Millisecond)
		}
	}()
	return sandboxes, containers, done
}

// TestC28_ShutdownAndReconnectUnderLoad: a thousand events a second while the
// agent is stopped, with a reader that doesn't read and with lists that hang;
// and streams that end in every way, of which each has to last a second to
// count as progress.
func TestC28_ShutdownAndReconnectUnderLoad(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) (f *field, end func()) {
		f = newField(t)
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		_, _, done := f.flood(ctx, size(50, 200))
		f.start()
		f.streamUp()
		f.eventually()
		return f, func() { cancel(); <-done }
	}
	t.Run("reader reads", func(t *testing.T) {
		t.Parallel()
		f, end := start(t)
		f.stop()
		end()
		f.checkRules()
	})
	t.Run("reader does not read", func(t *testing.T) {
		t.Parallel()
		f, end := start(t)
		oldest := f.g().Oldest()
		sub, err := f.g().Subscribe(&oldest)
		f.must(err)
		if _, err := sub.Next(t.Context()); err != nil { // and never again
			t.Error(err)
		}
		f.stop()
		end()
		for range 3 { // nor does it crash who reads on afterwards
			if _, err := sub.Next(t.Context()); err != nil && !errors.Is(err, pleg.ErrStopped) {
				t.Error(err)
			}
		}
		f.checkRules()
	})
	t.Run("list hangs", func(t *testing.T) {
		t.Parallel()
		f, end := start(t)
		hold := f.both("Containers", simruntime.Rule{Hang: true, IgnoreCancel: true})
		before := f.lists()
		f.until("a list that hangs", func() bool { return f.lists() > before })
		f.stop()
		hold()
		end()
		f.checkRules()
	})
	t.Run("streams end", func(t *testing.T) {
		t.Parallel()
		f, end := start(t)
		f.settled()
		cycles, ways := size(8, 200), []codes.Code{codes.Unavailable, codes.OK, codes.Internal, codes.Canceled}
		for n := range cycles {
			// One that ends without an error and never told anything is one that the
			// runtime doesn't have.
			events := f.g().Status().Stream.Events
			time.Sleep(1200 * time.Millisecond) // counts as progress, so that the delays don't grow
			f.until("an event", func() bool { return f.g().Status().Stream.Events > events })
			f.rt.EndStreams(ways[n%len(ways)])
			f.until("a new stream", func() bool { s := f.g().Status().Stream; return s.State == "up" && s.Reconnects >= uint64(n+1) })
		}
		f.logsOf("trouble (stream_down)", cycles)
		f.logsOf("recovered (stream_down)", cycles)
		end()
		f.finish()
	})
}

// TestC28Variation_RuntimeGoesAsTheAgentDoes: the runtime goes down, or stops
// taking data, in the same moment in which the agent is asked to end, and while
// the first connection is being made.
func TestC28Variation_RuntimeGoesAsTheAgentDoes(t *testing.T) {
	t.Parallel()
	f := newField(t)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	_, _, done := f.flood(ctx, 20)
	for n := range 6 {
		f.start()
		if n%2 == 0 {
			f.streamUp()
		}
		switch n % 3 {
		case 0:
			go f.rt.Down()
		case 1:
			f.rt.Freeze()
		case 2:
			go f.rt.EndStreams(codes.Unavailable)
		}
		f.stop()
		f.rt.Thaw()
		f.rt.Down()
		f.rt.Up()
	}
	cancel()
	<-done
	f.start()
	f.ready()
	f.finish()
	if _, err := os.Stat(filepath.Join(f.cfg.StateDir, store.FileName)); err != nil {
		t.Error(err)
	}
}

// TestC30_OneBadEventOrContainer: neither a container that can't be inspected at
// the start nor events that make no sense keep anybody else waiting.
func TestC30_OneBadEventOrContainer(t *testing.T) {
	t.Parallel()
	f := newField(t)
	var sandboxes, containers []string
	for i := range 100 {
		uid := fmt.Sprintf("N%d", i)
		sandboxes = append(sandboxes, f.sandbox("s"+uid, uid, "10.0.1."+fmt.Sprint(i)))
		containers = append(containers, f.container("c"+uid, sandboxes[i], uid, running))
	}
	bad := f.rule(simruntime.Rule{Method: "ContainerStatus", ID: containers[3], Code: codes.Internal})
	f.start()
	f.ready()
	for i, id := range containers {
		f.soon(id, "Started") // the bad one too: the list says that it runs
		if i != 3 && f.errorOf(id) != "" {
			t.Errorf("%s is said not to be inspectable", short(id))
		}
	}
	bad.Remove()
	f.eventually() // with the start time that only the status has
	f.trustedJust()
	f.settled()

	k1 := long("k1")
	f.rule(simruntime.Rule{Method: "ContainerStatus", ID: k1, Code: codes.Internal})
	streams := f.g().Status().Stream.Reconnects
	before := f.lists()
	f.rt.InjectEvent(&simruntime.Event{ContainerEventType: evStarted})
	f.event(evStopped, k1, long("nowhere"))
	y := f.container("Y", sandboxes[1], "N1", running)
	f.event(evStarted, y, sandboxes[1])
	f.exits(containers[2], 0)
	f.event(evStopped, containers[2], sandboxes[2])
	f.soon(y, "Started")
	f.soon(containers[2], "Died/0")
	if n := f.lists() - before; n > 1 {
		t.Errorf("it took %d lists", n)
	}
	f.byStream(y, 2)
	f.byStream(containers[2], 3)
	if n := f.g().Status().Stream.Reconnects; n != streams {
		t.Error("the stream was torn down")
	}
	f.wants(k1)
	f.neverUnready()
	f.finish()
}

// TestC30Variation_UndecodableEventAndList: bytes that are no message come down
// the stream between good events, and a list answer can't be decoded: that is no
// empty list (G6).
func TestC30Variation_UndecodableEventAndList(t *testing.T) {
	t.Parallel()
	f := newField(t)
	_, x := f.pod("a")
	sandbox, y := f.pod("b")
	f.start()
	f.trustedJust()
	f.settled()
	streams := f.g().Status().Stream.Reconnects
	garbage := new(simruntime.Event)
	simruntime.SetRaw(garbage, []byte{0x0a, 0xff, 0xff, 0xff})
	f.rt.InjectEvent(garbage)
	f.must(f.rt.ExitContainer(x, 3, ""))
	f.soon(x, "Died/3")
	f.until("the garbage to be counted", func() bool { return f.g().Status().Stream.Malformed > 0 })
	f.resume()
	before := f.lists()
	broken := f.both("Containers", simruntime.Rule{Raw: []byte{0x0a, 0xff, 0xff}})
	f.event(evDeleted, y, sandbox, bare) // asks for a list
	f.until("lists that fail", func() bool { return f.lists() > before+2 && f.g().Status().Relist.Failures > 1 })
	f.never(y, "Removed")
	broken()
	f.quiet()
	if n := f.g().Status().Stream.Reconnects; n != streams {
		t.Error("the stream was torn down")
	}
	f.wants(y, "Created", "Started")
	f.neverUnready()
	f.finish()
}

// TestC31_StopWhosePayloadSaysRunning: a contradiction is told as nothing and
// looked at again soon, a few times. Telling a death without a code at once is
// debatable; here it isn't told (G3).
func TestC31_StopWhosePayloadSaysRunning(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	y := f.container("Y", a, "U1", running)
	f.start()
	f.soon(y, "Started")
	f.eventually()
	f.trustedJust()
	f.settled()
	before := f.lists()
	f.event(evStopped, x, a)
	f.event(evStopped, y, a) // and goes on to run
	time.Sleep(500 * time.Millisecond)
	f.wants(x, "Created", "Started")
	f.exits(x, 7)
	f.soon(x, "Died/7")
	if n := f.lists() - before; n > 0 {
		t.Errorf("it took %d lists", n)
	}
	f.queueEmpty()
	if n := len(f.statusCalls(y)); n > 7 { // one at first, one or two for each look
		t.Errorf("%d looks at a container that runs", n)
	}
	f.wants(y, "Created", "Started")
	f.wants(x, "Created", "Started", "Died/7")
	f.finish()
}

// TestC31Variation_DeleteWhosePayloadStillHasIt: a DELETED for a container that
// its payload and the runtime still have, and a STOPPED for a sandbox that goes
// on to be READY. The true removal follows later.
func TestC31Variation_DeleteWhosePayloadStillHasIt(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	f.start()
	f.soon(x, "Started")
	f.eventually()
	f.trustedJust()
	f.settled()
	before := f.lists()
	f.event(evDeleted, x, a)
	f.event(evStopped, a, a)
	f.queueEmpty()
	f.wants(x, "Created", "Started")
	f.wants(a, "Created", "Ready")
	f.exits(x, 1)
	f.event(evStopped, x, a)
	f.soon(x, "Died/1")
	f.drop(x)
	f.event(evDeleted, x, a)
	f.soon(x, "Removed")
	if n := f.lists() - before; n > 0 {
		t.Errorf("it took %d lists", n)
	}
	f.wants(x, "Created", "Started", "Died/1", "Removed")
	f.finish()
}
