package storetest

import (
	"errors"
	"slices"
	"testing"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

func testFresh(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	for range 2 {
		s := x.load()
		x.same("fresh state", &store.Snapshot{Meta: store.Meta{Schema: store.Schema, Runtime: Runtime}}, s)
		x.journal(0, 0, 0)
		x.same("events", []store.Event(nil), x.events(0))
		x.same("events after a number never used", []store.Event(nil), x.events(9))
		x.reopen()
	}
}

// fullBatch has something in each field that a first batch can have.
func fullBatch() *store.Batch {
	return &store.Batch{
		Meta:       Meta(Epoch, 100),
		Records:    []*store.Record{Container("c2", "s1", 2), Sandbox("s2", 1), Container("c1", "s1", 1), Sandbox("s1", 0)},
		Tombstones: []*store.Record{Tombstone("t2", "s1", 5), Tombstone("t1", "s9", 4)},
		Asks:       []*store.Ask{Ask("c2", 3), Ask("c1", 2)},
		Events:     Events(1, 3, 90),
	}
}

func testRoundTrip(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	b := fullBatch()
	x.commit(b)
	want := &store.Snapshot{
		Meta:       b.Meta,
		Records:    []*store.Record{Sandbox("s1", 0), Sandbox("s2", 1), Container("c1", "s1", 1), Container("c2", "s1", 2)},
		Tombstones: []*store.Record{Tombstone("t1", "s9", 4), Tombstone("t2", "s1", 5)},
		Asks:       []*store.Ask{Ask("c1", 2), Ask("c2", 3)},
	}
	for range 2 {
		x.same("state", want, x.load())
		x.same("events", Events(1, 3, 90), x.events(0))
		x.journal(1, 3, 3)
		x.reopen()
	}
	// Strings that a runtime should never have sent must not cost a record.
	odd := Container("odd\xff", "s1", 1)
	odd.Identity.Labels = map[string]string{"\xfe": "\xff"}
	x.commit(&store.Batch{Meta: b.Meta, Records: []*store.Record{odd}})
	x.reopen()
	x.same("odd record", odd, x.load().Records[4])
}

func testDeletions(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	b := fullBatch()
	x.commit(b)
	x.commit(&store.Batch{
		Meta:       b.Meta,
		Gone:       []store.Key{{Kind: store.KindContainer, ID: "c1"}, {Kind: store.KindSandbox, ID: "s1"}, {Kind: store.KindContainer, ID: "s2"}, {Kind: store.KindContainer, ID: "c2"}},
		Records:    []*store.Record{Container("c2", "s1", 9)}, // deleted and put: put
		Tombstones: []*store.Record{Tombstone("c1", "s1", 1)},
		Forgotten:  []string{"t1", "never seen"},
		Answered:   []string{"c1", "never seen"},
	})
	x.reopen()
	x.same("state", &store.Snapshot{
		Meta:       b.Meta,
		Records:    []*store.Record{Sandbox("s2", 1), Container("c2", "s1", 9)}, // no container is called s2
		Tombstones: []*store.Record{Tombstone("c1", "s1", 1), Tombstone("t2", "s1", 5)},
		Asks:       []*store.Ask{Ask("c2", 3)},
	}, x.load())
}

func testRetry(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	first := fullBatch()
	x.commit(first)
	second := &store.Batch{
		Meta: Meta(Epoch, 200), Gone: []store.Key{{Kind: store.KindContainer, ID: "c1"}}, Records: []*store.Record{Container("c3", "s2", 1)},
		Answered: []string{"c1"}, Events: append(Events(4, 2, 190), Skip(6, 50, 190)),
	}
	x.commit(second)
	state, events, journal := x.load(), x.events(0), x.s.Journal()
	for range 3 {
		x.commit(second)
		x.same("state after a retry", state, x.load())
		x.same("events after a retry", events, x.events(0))
		x.same("journal after a retry", journal, x.s.Journal())
		x.reopen()
	}
	// A retry of which only a part was known to be written.
	more := *second
	more.Events = append(append([]store.Event(nil), second.Events...), Event(52, 200))
	x.commit(&more)
	x.same("events", append(events, Event(52, 200)), x.events(0))
}

func testRetryAfterRetention(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{Entries: 3})
	b := &store.Batch{Meta: Meta(Epoch, 1), Events: Events(1, 10, 1)}
	for range 3 {
		x.commit(b)
		x.journal(8, 10, 3)
		x.same("events", Events(8, 3, 1), x.events(7))
	}
}

func testConflict(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	x.commit(&store.Batch{Meta: Meta(Epoch, 1), Events: append(Events(1, 2, 1), Skip(3, 8, 1))})
	other := Event(2, 1)
	other.ExitCode++
	for name, events := range map[string][]store.Event{
		"other content":     {other, Event(10, 1)},
		"a skipped number":  {Event(5, 1)},
		"another type":      {Event(9, 1)},
		"the same, too old": {Event(2, 2)},
	} {
		before := x.load()
		err := x.s.Commit(&store.Batch{Meta: Meta(Epoch, 2), Records: []*store.Record{Sandbox("s7", 1)}, Events: events})
		if !errors.Is(err, store.ErrConflict) {
			t.Errorf("%s: got error %v, want ErrConflict", name, err)
		}
		x.same(name+": state after a refused batch", before, x.load())
		x.journal(1, 9, 3)
	}
	x.commit(&store.Batch{Meta: Meta(Epoch, 2), Events: Events(10, 1, 1)})
	x.journal(1, 10, 4)
}

func testMalformedBatch(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	x.commit(fullBatch())
	before := x.load()
	alien := Event(4, 1)
	alien.Position.Epoch[0]++
	for name, change := range map[string]func(*store.Batch){
		"event of another epoch": func(b *store.Batch) { b.Events = []store.Event{alien} },
		"event without an epoch": func(b *store.Batch) { b.Meta.Epoch, b.Events = timestamps.Epoch{}, []store.Event{{}} },
		"number 0":               func(b *store.Batch) { b.Events = Events(0, 1, 1) },
		"number 2^53":            func(b *store.Batch) { b.Events = Events(timestamps.MaxNumber+1, 1, 1) },
		"one number twice":       func(b *store.Batch) { b.Events = append(Events(4, 1, 1), Event(4, 1)) },
		"numbers that fall":      func(b *store.Batch) { b.Events = []store.Event{Event(5, 1), Event(4, 1)} },
		"record without an id":   func(b *store.Batch) { b.Records = append(b.Records, Sandbox("", 1)) },
		"record without a kind":  func(b *store.Batch) { b.Records = append(b.Records, &store.Record{ID: "x"}) },
		"tombstone without id":   func(b *store.Batch) { b.Tombstones = append(b.Tombstones, Sandbox("", 1)) },
		"ask without an id":      func(b *store.Batch) { b.Asks = append(b.Asks, &store.Ask{}) },
	} {
		b := &store.Batch{Meta: Meta(Epoch, 5), Records: []*store.Record{Sandbox("s8", 1)}}
		change(b)
		if err := x.s.Commit(b); !errors.Is(err, store.ErrBatch) {
			t.Errorf("%s: got error %v, want ErrBatch", name, err)
		}
		x.same(name+": state after a refused batch", before, x.load())
	}
}

func testPlacement(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	type placer interface {
		PodOf(container string) (store.Placement, bool)
		Containers(prefix string, limit int) ([]string, error)
	}
	if _, ok := x.s.(placer); !ok {
		t.Skip("the store doesn't tell where containers belong")
	}
	check := func(step, id string, want store.Placement) {
		t.Helper()
		got, ok := x.s.(placer).PodOf(id)
		if got != want || ok != (want != store.Placement{}) {
			t.Errorf("%s: %s is placed in %+v, want %+v", step, id, got, want)
		}
	}
	m := Meta(Epoch, 1)
	x.commit(&store.Batch{Meta: m, Records: []*store.Record{Container("c1", "s1", 1), Sandbox("s1", 1)}})
	check("new", "c1", store.Placement{Sandbox: "s1", Pod: "uid-s1"})
	check("sandbox", "s1", store.Placement{})
	nameless := Container("c1", "s2", 1)
	nameless.Identity.Pod.UID = ""
	x.commit(&store.Batch{Meta: m, Records: []*store.Record{nameless}})
	check("moved", "c1", store.Placement{Sandbox: "s2", Pod: store.PodKeyOfSandbox("s2")})
	x.commit(&store.Batch{Meta: m, Gone: []store.Key{{Kind: store.KindContainer, ID: "c1"}}, Tombstones: []*store.Record{Tombstone("c1", "s1", 1)}})
	x.reopen()
	check("removed", "c1", store.Placement{Sandbox: "s1", Pod: "uid-s1"})
	x.commit(&store.Batch{Meta: m, Forgotten: []string{"c1"}, Records: []*store.Record{Container("c1", "s1", 1)}})
	check("revived", "c1", store.Placement{Sandbox: "s1", Pod: "uid-s1"})
	x.commit(&store.Batch{Meta: m, Gone: []store.Key{{Kind: store.KindContainer, ID: "c1"}}})
	check("gone", "c1", store.Placement{})
	x.reopen()
	check("gone", "c1", store.Placement{})
	x.commit(&store.Batch{Meta: m, Records: []*store.Record{Container("ab", "s1", 1), Container("b", "s1", 1), Container("aa", "s1", 1)},
		Tombstones: []*store.Record{Tombstone("ac", "s1", 1)}})
	for _, tc := range []struct {
		prefix string
		limit  int
		want   []string
	}{{"a", 9, []string{"aa", "ab", "ac"}}, {"a", 2, []string{"aa", "ab"}}, {"ab", 9, []string{"ab"}}, {"c", 9, nil}} {
		if got, err := x.s.(placer).Containers(tc.prefix, tc.limit); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("containers that begin with %q: %q, %v; want %q", tc.prefix, got, err, tc.want)
		}
	}
}

func testEmptyBatch(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	b := &store.Batch{Meta: Meta(Epoch, 77)}
	x.commit(b)
	x.reopen()
	x.same("meta", b.Meta, x.load().Meta)
	if got := x.s.Journal().Epoch; got != Epoch {
		t.Errorf("journal is of epoch %s, want %s", got, Epoch)
	}
	// The version is the store's business, not the caller's.
	b.Meta.Schema = 0
	x.commit(b)
	if got := x.load().Meta.Schema; got != store.Schema {
		t.Errorf("schema is %d, want %d", got, store.Schema)
	}
}

func testClosed(t *testing.T, backend Backend) {
	open := backend(t, store.Retention{})
	s := open(t)
	if err := s.Commit(fullBatch()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := s.Load(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Load: got error %v, want ErrClosed", err)
	}
	if err := s.Commit(fullBatch()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Commit: got error %v, want ErrClosed", err)
	}
	if _, err := s.Events(0, 1); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Events: got error %v, want ErrClosed", err)
	}
	if j := s.Journal(); j.Last != 3 {
		t.Errorf("Journal: got %+v, want what it was", j)
	}
}
