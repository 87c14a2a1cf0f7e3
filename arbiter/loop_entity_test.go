package arbiter

import (
	"testing"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// An entity says what pods say of it, and why it is asked about; one that is
// provisional is not shown.
func TestEntities(t *testing.T) {
	snap := &store.Snapshot{
		Records: []*store.Record{
			{Kind: store.KindSandbox, ID: "s", Sandbox: "s", Identity: store.Identity{Pod: store.PodRef{UID: "u"}}},
			{Kind: store.KindContainer, ID: "c", Sandbox: "s", Identity: store.Identity{Pod: store.PodRef{UID: "u"}}},
			{Kind: store.KindContainer, ID: "p", Sandbox: "s", Provisional: true},
		},
		Asks: []*store.Ask{{ID: "c", Why: store.ReasonExit137 | store.ReasonRemoval}, {ID: "p", Why: store.ReasonConfirm}},
	}
	v := newView(snap, timestamps.Position{Epoch: storetest.Epoch, Seq: 1})
	v.faults["c"] = "broken"
	l := &Loop{view: v}
	var ids []string
	for _, e := range l.Entities() {
		ids = append(ids, e.ID)
	}
	if len(ids) != 2 || ids[0] != "c" || ids[1] != "s" {
		t.Errorf("entities %v", ids)
	}
	c, ok := l.Entity("c")
	if !ok || !c.Restored || c.Err != "broken" || c.Asked != store.ReasonExit137|store.ReasonRemoval || !c.Disputed() {
		t.Errorf("%+v, %v", c, ok)
	}
	if s, ok := l.Entity("s"); !ok || s.Asked != 0 || s.Disputed() {
		t.Errorf("%+v, %v", s, ok)
	}
	for _, id := range []string{"p", "nobody", ""} {
		if e, ok := l.Entity(id); ok {
			t.Errorf("%q: %+v", id, e)
		}
	}
	p, err := l.Pod("u")
	if err != nil || len(p.Containers) != 1 || p.Containers[0].Asked != c.Asked || p.Containers[0].Err != c.Err {
		t.Errorf("%+v, %v", p, err)
	}
}
