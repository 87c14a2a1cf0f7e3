package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/plegd/plegd/store"
)

// model is a store so simple that it is right at sight: maps, and a slice of
// all events that the epoch ever had.
type model struct {
	meta    store.Meta
	records map[store.Key]*store.Record
	tombs   map[string]*store.Record
	asks    map[string]*store.Ask
	events  []store.Event
	first   int // index in events of the oldest that the store should have kept
}

func newModel() *model {
	return &model{
		meta: store.Meta{Schema: store.Schema, Runtime: Runtime}, records: map[store.Key]*store.Record{},
		tombs: map[string]*store.Record{}, asks: map[string]*store.Ask{},
	}
}

// commit applies a batch that isn't a retry.
func (m *model) commit(b *store.Batch, keep store.Retention) {
	if b.Meta.Epoch != m.meta.Epoch {
		m.events, m.first = nil, 0
	}
	m.meta = b.Meta
	for _, k := range b.Gone {
		delete(m.records, k)
	}
	for _, id := range b.Forgotten {
		delete(m.tombs, id)
	}
	for _, id := range b.Answered {
		delete(m.asks, id)
	}
	for _, r := range b.Records {
		m.records[store.Key{Kind: r.Kind, ID: r.ID}] = r
	}
	for _, r := range b.Tombstones {
		m.tombs[r.ID] = r
	}
	for _, a := range b.Asks {
		m.asks[a.ID] = a
	}
	m.events = append(m.events, b.Events...)
	for len(m.kept()) > 1 && (len(m.kept()) > keep.Entries || m.meta.Running-m.kept()[0].Running > keep.Age) {
		m.first++
	}
}

func (m *model) kept() []store.Event { return m.events[m.first:] }

func (m *model) snapshot() *store.Snapshot {
	s := &store.Snapshot{Meta: m.meta, Records: sortRecords(slices.Collect(maps.Values(m.records)))}
	for _, id := range slices.Sorted(maps.Keys(m.tombs)) {
		s.Tombstones = append(s.Tombstones, m.tombs[id])
	}
	for _, id := range slices.Sorted(maps.Keys(m.asks)) {
		s.Asks = append(s.Asks, m.asks[id])
	}
	return s
}

// read is what Events should return: entries after a number as long as each
// follows the one before it, or says itself what is missing in between.
func (m *model) read(after uint64, limit int) (events []store.Event, expired bool) {
	kept := m.kept()
	if len(kept) == 0 || after >= kept[len(kept)-1].Position.Seq {
		return nil, false
	}
	for _, e := range kept {
		seq := e.Position.Seq
		if seq <= after {
			continue
		}
		follows := seq == after+1 || (e.Type == store.SequenceSkipped && e.From <= after+1)
		if !follows {
			return events, len(events) == 0
		}
		if len(events) == limit {
			return events, false
		}
		events, after = append(events, e), seq
	}
	return events, false
}

// machine drives a store and the model with the same random batches.
type machine struct {
	*tester
	m    *model
	keep store.Retention
	last *store.Batch // the latest one, to be tried again
}

var modelIDs = []string{"a", "b", "c", "d", "e", "f"}

func testModel(t *testing.T, backend Backend) {
	rapid.Check(t, func(r *rapid.T) {
		keep := store.Retention{
			Entries: rapid.SampledFrom([]int{3, 10, 1000}).Draw(r, "entries"),
			Age:     rapid.SampledFrom([]int64{5, 50, 1 << 40}).Draw(r, "age"),
		}
		open := backend(t, keep)
		x := &machine{tester: &tester{r, open, open(r)}, m: newModel(), keep: keep}
		defer func() { _ = x.s.Close() }()
		r.Repeat(map[string]func(*rapid.T){
			"commit":    x.drawCommit,
			"retry":     x.drawRetry,
			"new epoch": x.drawEpoch,
			"reopen":    func(*rapid.T) { x.reopen() },
			"read":      x.drawRead,
			"":          func(*rapid.T) { x.check() },
		})
	})
}

func (x *machine) drawCommit(r *rapid.T) {
	b := x.draw(r)
	x.commit(b)
	x.m.commit(b, x.keep)
	x.last = b
}

func (x *machine) drawRetry(r *rapid.T) {
	if x.last == nil {
		r.Skip("nothing was committed yet")
	}
	x.commit(x.last)
}

func (x *machine) drawEpoch(r *rapid.T) {
	b := x.draw(r)
	copy(b.Meta.Epoch[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(r, "epoch"))
	b.Meta.Epoch[0] |= 1 // never zero
	for i := range b.Events {
		b.Events[i].Position.Epoch = b.Meta.Epoch
	}
	x.commit(b)
	x.m.commit(b, x.keep)
	x.last = b
}

func (x *machine) drawRead(r *rapid.T) {
	top := 5
	if n := len(x.m.events); n > 0 {
		top += int(x.m.events[n-1].Position.Seq)
	}
	after := uint64(rapid.IntRange(0, top).Draw(r, "after"))
	limit := rapid.IntRange(1, 20).Draw(r, "limit")
	want, expired := x.m.read(after, limit)
	got, err := x.s.Events(after, limit)
	if errors.Is(err, store.ErrExpired) != expired || (err != nil && !expired) {
		r.Fatalf("Events(%d, %d): got error %v, want expired: %v", after, limit, err, expired)
	}
	x.same(fmt.Sprintf("Events(%d, %d)", after, limit), want, got)
}

// check compares everything that can be seen.
func (x *machine) check() {
	if want, got := x.m.snapshot(), x.load(); !sameSnapshot(want, got) {
		x.same("state", want, got)
	}
	kept, j := x.m.kept(), x.s.Journal()
	want := store.Journal{Epoch: x.m.meta.Epoch, Entries: len(kept), Bytes: j.Bytes}
	if len(kept) > 0 {
		want.First, want.Last = kept[0].Position.Seq, kept[len(kept)-1].Position.Seq
	}
	x.same("journal", want, j)
	if (j.Bytes > 0) != (len(kept) > 0) {
		x.Errorf("journal of %d entries has %d bytes", len(kept), j.Bytes)
	}
}

// sameSnapshot is a comparison that costs little; where it fails, a slow one
// tells the difference.
func sameSnapshot(a, b *store.Snapshot) bool {
	same := func(a, b *store.Record) bool {
		return a.SameContent(b) && a.Evidence == b.Evidence && a.Known == b.Known
	}
	return a.Meta == b.Meta && a.Dropped == b.Dropped && slices.EqualFunc(a.Records, b.Records, same) && slices.EqualFunc(a.Tombstones, b.Tombstones, same) &&
		slices.EqualFunc(a.Asks, b.Asks, func(a, b *store.Ask) bool { return *a == *b })
}

// draw makes a batch that follows what the model holds.
func (x *machine) draw(r *rapid.T) *store.Batch {
	id := func(label string) string { return rapid.SampledFrom(modelIDs).Draw(r, label) }
	few := func(label string) int { return rapid.IntRange(0, 3).Draw(r, label) }
	running := x.m.meta.Running + int64(few("time passed"))
	epoch := x.m.meta.Epoch
	if epoch.IsZero() {
		epoch = Epoch
	}
	b := &store.Batch{Meta: Meta(epoch, running)}
	for range few("records") {
		if rapid.Bool().Draw(r, "sandbox") {
			b.Records = append(b.Records, Sandbox(id("id"), few("n")))
		} else {
			b.Records = append(b.Records, Container(id("id"), id("sandbox"), few("n")))
		}
	}
	for range few("gone") {
		b.Gone = append(b.Gone, store.Key{Kind: rapid.SampledFrom([]store.Kind{store.KindSandbox, store.KindContainer}).Draw(r, "kind"), ID: id("id")})
	}
	for range few("tombstones") {
		b.Tombstones = append(b.Tombstones, Tombstone(id("id"), id("sandbox"), few("n")))
	}
	for range few("forgotten") {
		b.Forgotten = append(b.Forgotten, id("id"))
	}
	for range few("asks") {
		b.Asks = append(b.Asks, Ask(id("id"), few("n")))
	}
	for range few("answered") {
		b.Answered = append(b.Answered, id("id"))
	}
	x.drawEvents(r, b)
	return b
}

func (x *machine) drawEvents(r *rapid.T, b *store.Batch) {
	next := uint64(1)
	if n := len(x.m.events); n > 0 {
		next = x.m.events[n-1].Position.Seq + 1
	}
	for range rapid.IntRange(0, 6).Draw(r, "events") {
		e := Event(next, b.Meta.Running)
		switch rapid.IntRange(0, 9).Draw(r, "event") {
		case 0: // numbers that a crash left unused
			e = Skip(next, next+uint64(rapid.IntRange(0, 5).Draw(r, "skipped")), b.Meta.Running)
		case 1: // a hole that nothing explains
			e.Position.Seq++
		default:
			e.ExitCode = int32(rapid.IntRange(0, 3).Draw(r, "code"))
		}
		e.Position.Epoch = b.Meta.Epoch
		b.Events = append(b.Events, e)
		next = e.Position.Seq + 1
	}
}
