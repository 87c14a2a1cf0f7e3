package arbiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/plegd/plegd/store"
)

// pendingOf draws what many steps may have left: few entities with many
// changes, or many with few.
func pendingOf(t *rapid.T) *pending {
	entities := rapid.SampledFrom([]int{1, 3, 50, 5000}).Draw(t, "entities")
	steps, changes := rapid.IntRange(0, 20).Draw(t, "steps"), rapid.SampledFrom([]int{1, 10, 300}).Draw(t, "changes")
	// Thousands of draws would take rapid seconds, so it draws the seed.
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	p := new(pending)
	for range steps {
		out := new(Output)
		for range changes {
			change(&out.Changes, rng, fmt.Sprint("e", rng.IntN(entities)))
		}
		p.add(out)
	}
	if rapid.IntRange(0, 9).Draw(t, "skip") == 0 {
		p.add(&Output{Changes: store.Batch{Events: []store.Event{{Type: store.SequenceSkipped}}}})
	}
	p.meta = rapid.Bool().Draw(t, "meta")
	p.effects.add(&Output{Fresh: []Fresh{{Sent: 7}}})
	return p
}

// change adds a change of one entity.
func change(b *store.Batch, rng *rand.Rand, id string) {
	for range rng.IntN(4) {
		b.Events = append(b.Events, store.Event{SandboxID: id, From: rng.Uint64()})
	}
	switch rng.IntN(7) {
	case 0, 1:
		b.Records = append(b.Records, &store.Record{Kind: store.KindSandbox, ID: id})
	case 2:
		b.Gone = append(b.Gone, store.Key{Kind: store.KindSandbox, ID: id})
		b.Tombstones = append(b.Tombstones, &store.Record{Kind: store.KindSandbox, ID: id})
	case 3:
		b.Forgotten = append(b.Forgotten, id)
	case 4:
		b.Asks = append(b.Asks, &store.Ask{ID: id})
	case 5:
		b.Answered = append(b.Answered, id)
	}
}

// idsOf returns what a batch says of each entity, once for each saying.
func idsOf(b *store.Batch) (ids []string) {
	for _, r := range b.Records {
		ids = append(ids, r.ID)
	}
	for _, k := range b.Gone {
		ids = append(ids, k.ID)
	}
	for _, r := range b.Tombstones {
		ids = append(ids, r.ID)
	}
	ids = append(ids, b.Forgotten...)
	for _, a := range b.Asks {
		ids = append(ids, a.ID)
	}
	return append(ids, b.Answered...)
}

// TestLoopNeverSplitsAnEntity: a large batch is written in parts; the events
// stay in order, all of one entity is in exactly one part, nothing is lost, and
// freshness comes with the last (D1).
func TestLoopNeverSplitsAnEntity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := pendingOf(t)
		events := slices.Clone(p.events)
		said := len(p.records) + len(p.gone) + len(p.tombs) + len(p.asks)
		changes := p.changes()
		parts := p.split()
		if p.changes() || !p.effects.empty() {
			t.Fatal("something is still pending")
		}
		if !changes {
			return
		}
		var got []store.Event
		home := map[string]int{}
		at := func(id string, part int) {
			if was, ok := home[id]; ok && was != part && id != "" {
				t.Fatalf("D1: %s is in parts %d and %d", id, was, part)
			}
			home[id] = part
		}
		for i, pt := range parts {
			if changesNothing(&pt.batch) && len(parts) > 1 {
				t.Fatalf("part %d of %d is empty", i, len(parts))
			}
			if pt.effects.empty() != (i < len(parts)-1) {
				t.Fatalf("part %d of %d: effects %+v", i, len(parts), pt.effects)
			}
			got = append(got, pt.batch.Events...)
			for _, ev := range pt.batch.Events {
				at(entityOf(&ev), i)
			}
			ids := idsOf(&pt.batch)
			said -= len(ids)
			for _, id := range ids {
				at(id, i)
			}
		}
		same := func(a, b store.Event) bool { return a.SandboxID == b.SandboxID && a.From == b.From }
		if !slices.EqualFunc(events, got, same) {
			t.Fatal("the parts have other events, or in another order")
		}
		if said != 0 {
			t.Fatalf("%d changes were lost", said)
		}
	})
}

// TestLoopSplitsALargeRelist: the first relist of a large node is written in
// several transactions, none much larger than a part, and all of it is told.
func TestLoopSplitsALargeRelist(t *testing.T) {
	const n = 2500
	eachPlace(t, store.Retention{}, func(t *testing.T, p place) {
		d := drive(t, p.open(t))
		d.sync(items(names("s", n))...)
		if got := d.Position().Seq; got != 2*n {
			t.Errorf("%d entries, want %d", got, 2*n)
		}
		commits := d.seen.committed()
		for _, c := range commits {
			if c.events > partSize+1 {
				t.Errorf("a transaction of %d events", c.events)
			}
		}
		if len(commits) < 2*n/partSize {
			t.Errorf("%d transactions", len(commits))
		}
		if pods, _ := d.Pods(); len(pods) != n {
			t.Errorf("%d pods", len(pods))
		}
		d.stop()
	})
}
