package storetest

import (
	"testing"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// rescuer returns the store as one that can be rescued, or skips the test.
func (x *tester) rescuer(t *testing.T) store.Rescuer {
	t.Helper()
	r, ok := x.s.(store.Rescuer)
	if !ok {
		t.Skip("this store offers no rescue")
	}
	return r
}

// A rescue changes nothing that can be seen, and neither does the retry after
// it.
func testRescue(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	first := &store.Batch{
		Meta: Meta(Epoch, 1), Records: []*store.Record{Sandbox("s1", 1), Container("c1", "s1", 1)},
		Tombstones: []*store.Record{Tombstone("c0", "s1", 1)}, Asks: []*store.Ask{Ask("c1", 1)}, Events: Events(1, 5, 1),
	}
	x.commit(first)
	state, events := x.load(), x.events(0)
	if err := x.rescuer(t).Rescue(store.ErrIO); err != nil {
		t.Fatal(err)
	}
	x.same("state", state, x.load())
	x.same("events", events, x.events(0))
	x.journal(1, 5, 5)
	x.commit(first)
	x.journal(1, 5, 5)
	x.commit(&store.Batch{Meta: Meta(Epoch, 2), Events: Events(6, 1, 2)})
	x.reopen()
	x.journal(1, 6, 6)
}

// After a renewal nothing is left, and the next commit starts another epoch.
func testRenew(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	x.commit(&store.Batch{Meta: Meta(Epoch, 1), Records: []*store.Record{Sandbox("s1", 1)}, Events: Events(1, 5, 1)})
	if err := x.rescuer(t).Renew(store.ErrDamaged); err != nil {
		t.Fatal(err)
	}
	x.journal(0, 0, 0)
	x.same("state", &store.Snapshot{Meta: store.Meta{Schema: store.Schema, Runtime: Runtime}}, x.load())
	if got, err := x.s.Events(3, 10); len(got) != 0 || err != nil {
		t.Errorf("Events: %d, %v; want none", len(got), err)
	}
	epoch := timestamps.Epoch{9}
	batch := &store.Batch{Meta: Meta(epoch, 2), Records: []*store.Record{Sandbox("s1", 2)}, Events: Events(1, 2, 2)}
	for i := range batch.Events {
		batch.Events[i].Position.Epoch = epoch
	}
	x.commit(batch)
	x.reopen()
	x.journal(1, 2, 2)
	x.same("events", batch.Events, x.events(0))
	x.same("records", batch.Records, x.load().Records)
}
