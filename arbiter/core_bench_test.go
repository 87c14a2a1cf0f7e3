package arbiter

import (
	"fmt"
	"testing"

	"github.com/plegd/plegd/store"
)

// busy is a rig with this many containers, two to a sandbox, all running and
// inspected.
func busy(containers int) (*rig, *truth) {
	w := &truth{things: map[string]thing{}}
	for i := range containers {
		s := fmt.Sprintf("sandbox-%05d", i/2)
		pod := fmt.Sprintf("pod-uid-%05d", i/2)
		if i%2 == 0 {
			w.things[s] = thing{kind: store.KindSandbox, id: s, sandbox: s, pod: pod, state: store.StateUp, createdAt: start, ip: "10.0.0.1"}
		}
		id := fmt.Sprintf("container-%05d", i)
		w.things[id] = thing{kind: store.KindContainer, id: id, sandbox: s, pod: pod, state: store.StateUp, createdAt: start, startedAt: start}
	}
	r := newRig(Limits{})
	r.quick(r.answerNow(w, ActionKey{Kind: ActList}))
	for _, id := range sortedKeys(w.things) {
		r.quick(r.answerNow(w, ActionKey{ActStatus, id}))
	}
	return r, w
}

// answerNow makes a whole call.
func (r *rig) answerNow(w *truth, key ActionKey) Input {
	c := r.newCall(key)
	for {
		if in := r.advance(w, c); in != nil {
			delete(r.open, c.first.Sent.Tick)
			delete(r.open, c.second.Sent.Tick)
			return in
		}
	}
}

// quick steps without the rig's checks.
func (r *rig) quick(in Input) Output { return r.core.Step(r.now(), in) }

func BenchmarkStep(b *testing.B) {
	for _, digest := range []bool{false, true} {
		b.Run(fmt.Sprintf("world=small/digest=%t", digest), func(b *testing.B) {
			r, w := busy(4)
			// The inputs are made beforehand and played again and again on
			// clones of the first state, as an exhaustive search would.
			const round = 4096
			inputs, nows := make([]Input, round), make([]Now, round)
			for i := range inputs {
				inputs[i], nows[i] = smallStep(r, w, i), r.now()
			}
			if digest {
				r.core.Digest()
			}
			var c *Core
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%round == 0 {
					c = r.core.Clone()
				}
				c.Step(nows[i%round], inputs[i%round])
				if digest {
					c.Digest()
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}

// smallStep is a mix of what an exhaustive search would try: real changes'
// events, inspections and lists.
func smallStep(r *rig, w *truth, i int) Input {
	id := fmt.Sprintf("container-%05d", i/8%4)
	x := w.things[id]
	switch i % 8 {
	case 0:
		return r.answerNow(w, ActionKey{Kind: ActList})
	case 1, 2, 3:
		return r.answerNow(w, ActionKey{ActStatus, id})
	case 4:
		x.state, x.exit = store.StateDown, store.Exit{Code: 1, FinishedAt: start + second}
		w.things[id] = x
		fallthrough
	default:
		kind := EventStarted
		if x.state == store.StateDown {
			kind = EventStopped
		}
		ev := w.event(transition{kind, id}, x.sandbox, r.wall)
		ev.At = r.stamp()
		if i%8 == 7 {
			x.state, x.exit = store.StateUp, store.Exit{}
			w.things[id] = x
		}
		return ev
	}
}

func BenchmarkRelist(b *testing.B) {
	for _, n := range []int{250, 20_000} {
		b.Run(fmt.Sprintf("containers=%d/changed=0", n), func(b *testing.B) {
			r, w := busy(n)
			in := r.answerNow(w, ActionKey{Kind: ActList}).(*ListSeen)
			b.ReportAllocs()
			for b.Loop() {
				r.pass(second)
				next := *in
				next.SandboxCall = Call{Sent: r.stamp(), Answered: r.stamp()}
				next.ContainerCall = Call{Sent: r.stamp(), Answered: r.stamp()}
				out := r.quick(&next)
				if !changesNothing(&out.Changes) {
					b.Fatal("an unchanged list changed something")
				}
			}
		})
	}
}

func BenchmarkClone(b *testing.B) {
	r, _ := busy(4)
	b.ReportAllocs()
	for b.Loop() {
		r.core.Clone()
	}
}
