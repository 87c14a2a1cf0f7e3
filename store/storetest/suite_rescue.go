package storetest

import (
	"errors"
	"testing"

	"github.com/plegd/plegd/store"
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

// After a renewal nothing is left but what it was given, in one step: whenever
// the store is opened again, it has the old state or that. Its events go on under
// the epoch that was given.
func testRenew(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	x.commit(&store.Batch{
		Meta: Meta(Epoch, 1), Records: []*store.Record{Sandbox("s1", 1), Container("c1", "s1", 1)},
		Tombstones: []*store.Record{Tombstone("c0", "s1", 1)}, Asks: []*store.Ask{Ask("c1", 1)}, Events: Events(1, 5, 1),
	})
	first := Anew()
	first.Records, first.Asks = []*store.Record{Sandbox("s1", 1), Container("c2", "s1", 1)}, []*store.Ask{Ask("c2", 1)}
	if err := x.rescuer(t).Renew(store.ErrDamaged, first); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		x.journal(0, 0, 0)
		got := x.load()
		x.same("records", sortRecords(first.Records), got.Records)
		x.same("questions", first.Asks, got.Asks)
		if len(got.Tombstones) > 0 || got.Meta.Epoch != first.Meta.Epoch || got.Meta.Reserved != first.Meta.Reserved {
			t.Errorf("tombstones %+v, meta %+v", got.Tombstones, got.Meta)
		}
		if got, err := x.s.Events(3, 10); len(got) != 0 || err != nil {
			t.Errorf("Events: %d, %v; want none", len(got), err)
		}
		x.reopen()
	}
	bad := Anew()
	bad.Records = []*store.Record{{ID: ""}}
	if err := x.rescuer(t).Renew(store.ErrDamaged, bad); !errors.Is(err, store.ErrBatch) {
		t.Errorf("a batch that contradicts itself: %v", err)
	}
	batch := &store.Batch{Meta: Meta(first.Meta.Epoch, 2), Records: []*store.Record{Sandbox("s1", 2)}, Events: Events(1, 2, 2)}
	for i := range batch.Events {
		batch.Events[i].Position.Epoch = first.Meta.Epoch
	}
	x.commit(batch)
	x.reopen()
	x.journal(1, 2, 2)
	x.same("events", batch.Events, x.events(0))
	x.same("records", sortRecords([]*store.Record{batch.Records[0], first.Records[1]}), x.load().Records)
}
