package arbiter

import (
	"testing"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// FuzzStep gives the core any sequence of inputs that bytes can spell, true or
// not. It must not panic and must keep what holds for every input: the rig's
// checks (O1, O7, O9, D1).
func FuzzStep(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03"))
	f.Add([]byte("list \x01\x10\x20\x30 event \x02 status \x03"))
	for seed := range byte(8) {
		text := make([]byte, 120)
		for i := range text {
			text[i] = byte(i)*37 + seed*11
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &decoder{data: data}
		r := newRig(Limits{Tombstones: int(d.byte() % 4), TombstoneAge: int64(d.byte()) * second})
		r.liar = true
		for len(d.data) > 0 {
			d.turn(r)
			for _, f := range r.faults {
				t.Fatal(f)
			}
		}
	})
}

// decoder reads inputs from bytes; past the end all are zero.
type decoder struct{ data []byte }

func (d *decoder) byte() byte {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return b
}

// time is a time of a runtime: plausible, or not.
func (d *decoder) time() int64 {
	switch b := d.byte(); b % 8 {
	case 0:
		return 0
	case 1:
		return start / second
	case 2:
		return -int64(b)
	case 3:
		return 1<<63 - 1
	default:
		return start + int64(b)*second
	}
}

var fuzzIDs = [...]string{"A", "B", "X", "Y", "Z", ""}

func (d *decoder) id() string { return fuzzIDs[int(d.byte())%len(fuzzIDs)] }

func (d *decoder) item() Item {
	b := d.byte()
	it := Item{Kind: store.Kind(b%4) % 3, ID: d.id(), Sandbox: d.id(), State: int32(d.byte()%6) - 1, Full: b&16 != 0}
	if b&32 != 0 {
		it.Identity.Pod.UID = "U" + d.id()
		it.Identity.Attempt = uint32(b % 3)
	}
	if it.Kind == store.KindContainer && b&64 != 0 {
		it.StartedAt = max(0, d.time())
		it.Exit = store.Exit{Code: int32(d.byte()), FinishedAt: max(0, d.time())}
	}
	if it.Kind == store.KindSandbox && b&64 != 0 {
		it.IPs = []string{"10.0.0." + string('0'+b%8)}
		it.HostNetwork = b&128 != 0
	}
	if it.Full {
		it.Rest = string(rune('a' + b%4))
	}
	return it
}

func (d *decoder) items() []Item {
	list := make([]Item, d.byte()%5)
	for i := range list {
		list[i] = d.item()
	}
	return list
}

// stamps returns the two stamps of a call, perhaps sent long ago.
func (d *decoder) call(r *rig) Call {
	sent := r.stamp()
	sent.Tick -= min(sent.Tick-1, timestamps.Tick(d.byte()%8))
	return Call{Sent: sent, Answered: r.stamp()}
}

func (d *decoder) turn(r *rig) {
	r.pass(int64(d.byte()) * second / 4)
	switch d.byte() % 16 {
	case 0, 1, 2, 3:
		ev := &EventSeen{Type: EventKind(d.byte()%6) - 1, ID: d.id(), CreatedAt: d.time(), Containers: d.items()}
		if b := d.byte(); b%4 > 0 {
			it := d.item()
			it.Kind = store.KindSandbox
			ev.Sandbox = &it
		}
		ev.At = r.stamp()
		r.step(ev)
	case 4, 5, 6:
		r.step(&ListSeen{Sandboxes: d.items(), Containers: d.items(), SandboxCall: d.call(r), ContainerCall: d.call(r)})
	case 7:
		r.step(&ListSeen{Scope: Scope{Sandbox: d.id()}, Sandboxes: d.items(), Containers: d.items(), SandboxCall: d.call(r), ContainerCall: d.call(r)})
	case 8:
		r.step(&ListFailed{Scope: Scope{Sandbox: d.id(), PodUID: d.id()}, At: r.stamp()})
	case 9, 10:
		it := d.item()
		r.step(&StatusSeen{ID: it.ID, Item: &it, Call: d.call(r)})
	case 11:
		r.step(&StatusSeen{ID: d.id(), NotFound: d.byte()%2 == 0, Err: d.id(), Call: d.call(r)})
	case 12:
		r.step(&StreamChanged{At: r.stamp(), State: StreamState(d.byte() % 4)})
	case 13:
		r.wall += int64(d.byte())*60*second - 7200*second
		r.step(&TimePassed{At: r.stamp()})
	case 14:
		r.held = d.byte()%2 == 0
		if r.held {
			return
		}
		r.restart()
	default:
		r.step(&RuntimeSeen{At: r.stamp(), Name: [...]string{"containerd", "cri-o", ""}[d.byte()%3]})
		r.step(&Requested{At: r.stamp(), PodKey: d.id()})
		r.step(&StreamOverflow{At: r.stamp()})
	}
}
