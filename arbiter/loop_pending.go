package arbiter

import (
	"maps"
	"slices"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// pending gathers what steps decided until it is committed or, while the store
// fails, told from memory. Of several changes
// to one entity the last is kept; events are all kept, in order.
type pending struct {
	records map[string]*store.Record // put
	gone    map[store.Key]struct{}   // delete
	tombs   map[string]*store.Record // put; nil: delete
	asks    map[string]*store.Ask    // put; nil: delete
	events  []store.Event
	meta    bool // the meta entry alone changed
	effects effects
}

// effects is what readers are told once the changes before it are told. Of
// several of one kind the last is kept.
type effects struct {
	fresh     map[string]timestamps.Tick // pod key, "" for everything → newest call that was applied
	confirmed map[string]struct{}        // ids
	faults    map[string]string          // id → error, "" when it works again
	relisted  int64                      // monotonic ns at which the newest full list was sent
}

func (e *effects) empty() bool { return len(e.fresh)+len(e.confirmed)+len(e.faults) == 0 }

func (e *effects) add(out *Output) {
	if e.fresh == nil {
		e.fresh, e.confirmed, e.faults = map[string]timestamps.Tick{}, map[string]struct{}{}, map[string]string{}
	}
	for _, f := range out.Fresh {
		e.fresh[f.PodKey] = max(e.fresh[f.PodKey], f.Sent)
		if f.PodKey == "" { // covers every pod: older looks say nothing more
			maps.DeleteFunc(e.fresh, func(key string, t timestamps.Tick) bool { return key != "" && t <= f.Sent })
		}
	}
	for _, k := range out.Confirmed {
		e.confirmed[k.ID] = struct{}{}
	}
	for _, k := range out.Changes.Gone { // what is gone has neither
		delete(e.confirmed, k.ID)
		delete(e.faults, k.ID)
	}
	for _, f := range out.Faults {
		e.faults[f.Key.ID] = f.Err
	}
}

func (p *pending) add(out *Output) {
	ch := &out.Changes
	if p.records == nil {
		p.records, p.gone = map[string]*store.Record{}, map[store.Key]struct{}{}
		p.tombs, p.asks = map[string]*store.Record{}, map[string]*store.Ask{}
	}
	// An id that turned out to be of the other kind is gone and put in one step.
	for _, k := range ch.Gone {
		delete(p.records, k.ID)
		p.gone[k] = struct{}{}
	}
	for _, r := range ch.Records {
		p.records[r.ID] = r
		delete(p.gone, store.Key{Kind: r.Kind, ID: r.ID})
	}
	for _, id := range ch.Forgotten {
		p.tombs[id] = nil
	}
	for _, t := range ch.Tombstones {
		p.tombs[t.ID] = t
	}
	for _, a := range ch.Asks {
		p.asks[a.ID] = a
	}
	for _, id := range ch.Answered {
		p.asks[id] = nil
	}
	p.events = append(p.events, ch.Events...)
	p.effects.add(out)
}

// changes reports whether there is anything to write.
func (p *pending) changes() bool {
	return p.meta || len(p.records)+len(p.gone)+len(p.tombs)+len(p.asks)+len(p.events) > 0
}

// part is one transaction's worth of pending changes. Its events get their
// numbers when it is first written or told and keep them from then on.
type part struct {
	batch    store.Batch
	numbered bool
	effects  effects
}

// partSize is how many events or records go into one transaction: enough to
// spread the cost of a sync, few enough that a first relist of thousands of
// containers does not hold everything up for seconds.
const partSize = 1000

// split turns all that is pending into parts. All of one entity, its events,
// record and tombstone, is in one part, so that a crash between two parts
// leaves each entity told and recorded or neither (rule D1).
func (p *pending) split() []part {
	last := map[string]int{} // entity → index of its last event
	for i := range p.events {
		last[entityOf(&p.events[i])] = i
	}
	var parts []part
	for begin := 0; begin < len(p.events); {
		end, reach := begin, begin
		for ; end < len(p.events) && (end-begin < partSize || end <= reach); end++ {
			reach = max(reach, last[entityOf(&p.events[end])])
		}
		parts = append(parts, p.part(p.events[begin:end]))
		begin = end
	}
	// What has no event of its own follows, in order of id.
	rest := slices.Sorted(maps.Keys(p.ids()))
	if len(rest) == 0 && len(parts) == 0 {
		parts = append(parts, part{})
	}
	for chunk := range slices.Chunk(rest, partSize) {
		var pt part
		for _, id := range chunk {
			p.move(&pt.batch, id)
		}
		parts = append(parts, pt)
	}
	parts[len(parts)-1].effects = p.effects
	*p = pending{}
	return parts
}

func (p *pending) part(events []store.Event) part {
	pt := part{batch: store.Batch{Events: events}}
	ids := map[string]struct{}{}
	for i := range events {
		ids[entityOf(&events[i])] = struct{}{}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		p.move(&pt.batch, id)
	}
	return pt
}

// move takes all that is pending for one entity into a batch.
func (p *pending) move(b *store.Batch, id string) {
	if r, ok := p.records[id]; ok {
		b.Records = append(b.Records, r)
		delete(p.records, id)
	}
	for _, kind := range [...]store.Kind{store.KindSandbox, store.KindContainer} {
		if k := (store.Key{Kind: kind, ID: id}); has(p.gone, k) {
			b.Gone = append(b.Gone, k)
			delete(p.gone, k)
		}
	}
	if t, ok := p.tombs[id]; ok {
		if t != nil {
			b.Tombstones = append(b.Tombstones, t)
		} else {
			b.Forgotten = append(b.Forgotten, id)
		}
		delete(p.tombs, id)
	}
	if a, ok := p.asks[id]; ok {
		if a != nil {
			b.Asks = append(b.Asks, a)
		} else {
			b.Answered = append(b.Answered, id)
		}
		delete(p.asks, id)
	}
}

func (p *pending) ids() map[string]struct{} {
	ids := map[string]struct{}{}
	for id := range p.records {
		ids[id] = struct{}{}
	}
	for k := range p.gone {
		ids[k.ID] = struct{}{}
	}
	for id := range p.tombs {
		ids[id] = struct{}{}
	}
	for id := range p.asks {
		ids[id] = struct{}{}
	}
	return ids
}

// entityOf returns the id of the entity an event is about.
func entityOf(ev *store.Event) string {
	if ev.Container.ID != "" {
		return ev.Container.ID
	}
	return ev.SandboxID
}

func has[K comparable](set map[K]struct{}, k K) bool {
	_, ok := set[k]
	return ok
}
