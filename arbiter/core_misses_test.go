package arbiter

import (
	"fmt"
	"testing"
)

// TestMissMarksAreBounded: where no full list is periodic, nothing judges what
// the stream hasn't told, as CRI-O never tells of a sandbox's removal. Such
// marks end with the tombstones.
func TestMissMarksAreBounded(t *testing.T) {
	t.Parallel()
	const kept, second = 10, 1_000_000_000
	r := newRig(Limits{Tombstones: kept})
	call := func() Call {
		sent := r.send()
		return Call{Sent: sent, Answered: r.stamp()}
	}
	list := func(scope Scope, items ...Item) {
		r.step(&ListSeen{Scope: scope, Sandboxes: items, SandboxCall: call(), ContainerCall: call()})
		r.pass(20 * second)
	}
	r.step(&StreamChanged{At: r.stamp(), State: StreamUp})
	for range 3 {
		list(Scope{})
	}
	most := 0
	for i := range 10 * kept {
		it := ready(fmt.Sprintf("s%d", i))
		at := r.stamp()
		r.step(&EventSeen{At: at, Type: EventStarted, ID: it.ID, CreatedAt: at.Wall, Sandbox: &it})
		r.pass(second)
		for range 2 {
			list(Scope{Sandbox: it.ID})
		}
		if r.core.ents[it.ID] != nil {
			t.Fatalf("%s is still there", it.ID)
		}
		most = max(most, len(r.core.missing))
	}
	if most == 0 || most > kept+1 || len(r.core.tombs) > kept+1 {
		t.Errorf("up to %d marks of %d tombstones", most, len(r.core.tombs))
	}
	for id := range r.core.missing {
		if r.core.tombs[id] == nil {
			t.Errorf("%s has a mark, but nothing is known of it", id)
		}
	}
}
