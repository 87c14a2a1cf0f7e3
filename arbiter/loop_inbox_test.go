package arbiter

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

func newInbox(events int, bytes int64, dropped func(*ListSeen)) *inbox {
	q := new(inbox)
	if dropped == nil {
		dropped = func(*ListSeen) {}
	}
	q.init(events, bytes, dropped)
	return q
}

// TestLoopInboxBoundsEvents: events are bounded by number and by size, one of
// any size fits an empty queue, and other inputs are never refused.
func TestLoopInboxBoundsEvents(t *testing.T) {
	small := func() *EventSeen { return &EventSeen{} }
	large := func(n int) *EventSeen { return &EventSeen{Sandbox: &Item{Rest: strings.Repeat("x", n)}} }
	const kib = 1 << 10
	tests := []struct {
		name   string
		events int
		bytes  int64
		put    []*EventSeen
		want   []bool
	}{
		{"by number", 2, 64 * kib, []*EventSeen{small(), small(), small()}, []bool{true, true, false}},
		{"by size", 10, 8 * kib, []*EventSeen{large(6 * kib), large(6 * kib), small()}, []bool{true, false, true}},
		{"one too large", 10, 8 * kib, []*EventSeen{large(100 * kib), small()}, []bool{true, false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := newInbox(tt.events, tt.bytes, nil)
			var got []bool
			for _, ev := range tt.put {
				got = append(got, q.putEvent(ev))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("taken (-want +got):\n%s", diff)
			}
			for range 100 {
				q.put(&TimePassed{})
			}
			if n := len(q.take()); n < 101 {
				t.Errorf("%d inputs taken", n)
			}
			if !q.putEvent(small()) || q.queued() != 1 {
				t.Error("no room after all was taken")
			}
		})
	}
}

// TestLoopInboxKeepsWhatMatters: of what comes without being asked for, only as
// much is kept as makes a difference, in order, and the calls of lists that
// will not be applied are over (O6: else no tombstone would ever be evicted).
func TestLoopInboxKeepsWhatMatters(t *testing.T) {
	list := func(tick timestamps.Tick) Input {
		return &ListSeen{SandboxCall: Call{Sent: timestamps.Stamp{Tick: tick}}}
	}
	scoped := func() Input { return &ListSeen{Scope: Scope{Sandbox: "s"}} }
	failed := func(why string) Input { return &ListFailed{Err: why} }
	ask := func(key string, tick timestamps.Tick) Input {
		return &Requested{PodKey: key, At: timestamps.Stamp{Tick: tick}}
	}
	lost := func(n int) Input { return &StreamOverflow{Lost: n} }
	tests := []struct {
		name    string
		put     []Input
		want    []Input
		dropped []timestamps.Tick
	}{
		{"the newest two full lists", []Input{list(1), &EventSeen{}, list(2), list(3), list(4)}, []Input{&EventSeen{}, list(3), list(4)}, []timestamps.Tick{1, 2}},
		{"all lists that were asked for", []Input{list(1), scoped(), scoped(), list(2)}, []Input{list(1), scoped(), scoped(), list(2)}, nil},
		{"the first and the last failed list", []Input{failed("a"), failed("b"), &EventSeen{}, failed("c"), failed("d")}, []Input{failed("a"), &EventSeen{}, failed("d")}, nil},
		{"one request for a pod", []Input{ask("u", 1), ask("v", 2), ask("u", 3)}, []Input{ask("v", 2), ask("u", 3)}, nil},
		{"one overflow, with the sum", []Input{lost(1), &EventSeen{}, lost(2), lost(3)}, []Input{&EventSeen{}, lost(6)}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var dropped []timestamps.Tick
			q := newInbox(100, 1<<20, func(l *ListSeen) { dropped = append(dropped, l.SandboxCall.Sent.Tick) })
			for _, in := range tt.put {
				if ev, ok := in.(*EventSeen); ok {
					q.putEvent(ev)
				} else {
					q.put(in)
				}
			}
			if diff := cmp.Diff(tt.want, q.take()); diff != "" {
				t.Errorf("queue (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.dropped, dropped); diff != "" {
				t.Errorf("dropped lists (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLoopEndsCalls: a call counts as in flight until its answer is applied,
// whatever it was, and no longer.
func TestLoopEndsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync(ready("s1"))
		begun := d.Calls().Begin(timestamps.FromInspect)
		if d.Calls().Oldest() != begun.Tick {
			t.Errorf("oldest call %d, want %d", d.Calls().Oldest(), begun.Tick)
		}
		it := ready("s1")
		d.Submit(&StatusSeen{Kind: store.KindSandbox, ID: "s1", Call: Call{Sent: begun, Answered: d.moment()}, Item: &it})
		d.Submit(&ListSeen{Scope: Scope{Sandbox: "s1"}, Sandboxes: []Item{it}, SandboxCall: d.call(), ContainerCall: d.call()})
		synctest.Wait()
		if n := d.Calls().InFlight(); n != 0 || d.Calls().Oldest() != 0 {
			t.Errorf("%d calls in flight", n)
		}
		d.Calls().End(begun.Tick) // twice is harmless
		d.stop()
	})
}

// TestLoopRefusesAnotherRuntime: a runtime with another name than the one that
// the state describes ends the run, and the state is left as after a clean
// stop, so that the right runtime goes on without a gap.
func TestLoopRefusesAnotherRuntime(t *testing.T) {
	id := store.RuntimeID{Endpoint: "/run/x.sock", Node: "node"}
	eachPlaceOf(t, id, store.Retention{}, func(t *testing.T, p place) {
		configure := func(c *Config) { c.Runtime = id }
		d := drive(t, p.open(t), configure)
		d.Submit(&RuntimeSeen{At: d.moment(), Name: "containerd"})
		d.sync()
		d.tell("s1")
		d.sync(ready("s1"))
		at := d.Position()
		d.stop()

		d = drive(t, p.open(t), configure)
		d.Submit(&RuntimeSeen{At: d.moment(), Name: "cri-o"})
		d.list(ready("other"))
		err := d.end()
		if !errors.Is(err, store.ErrForeign) || !strings.Contains(err.Error(), `"cri-o"`) || !strings.Contains(err.Error(), `"containerd"`) {
			t.Fatalf("run: %v", err)
		}

		d = drive(t, p.open(t), configure)
		if d.Position() != at {
			t.Errorf("position %v, want %v", d.Position(), at)
		}
		d.Submit(&RuntimeSeen{At: d.moment(), Name: "containerd"})
		d.sync(ready("s1"))
		d.tell("s2")
		d.sync(ready("s1"), ready("s2"))
		if events := d.after(at); len(events) != 2 || gapless(t, events) != 0 {
			t.Errorf("journal goes on with %+v", events)
		}
		d.stop()
	})
}
