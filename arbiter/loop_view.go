package arbiter

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// view is the state as readers see it: what is committed and, while the store
// fails, what has been told from memory since.
type view struct {
	mu       sync.RWMutex
	recs     map[string]*store.Record
	pods     map[string]map[string]struct{} // pod key → ids
	seen     map[string]bool                // ids seen in this run
	faults   map[string]string
	asks     map[string]*store.Ask
	freshAll timestamps.Tick
	relisted int64                      // monotonic ns at which the list behind freshAll was sent
	fresh    map[string]timestamps.Tick // pod key → newest look
	position timestamps.Position
	changed  chan struct{} // closed and replaced when freshness or a question moves
	ended    bool
}

func newView(snap *store.Snapshot, at timestamps.Position) *view {
	v := &view{
		recs: map[string]*store.Record{}, pods: map[string]map[string]struct{}{}, seen: map[string]bool{},
		faults: map[string]string{}, asks: map[string]*store.Ask{}, fresh: map[string]timestamps.Tick{},
		position: at, changed: make(chan struct{}),
	}
	for _, r := range snap.Records {
		v.put(r)
	}
	for _, a := range snap.Asks {
		v.asks[a.ID] = a
	}
	return v
}

// apply takes a part. Its events are published while readers of the
// view wait: who has read an event finds what it led to in the pods, and who
// goes on from the position of the pods finds that position in the feed.
func (v *view) apply(p *part, publish func([]store.Event) timestamps.Position) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.position = publish(p.batch.Events)
	for _, k := range p.batch.Gone {
		v.drop(k.ID)
	}
	for _, r := range p.batch.Records {
		if v.recs[r.ID] == nil {
			v.seen[r.ID] = true // what was not there before this run is of this run
		}
		v.put(r)
	}
	for _, a := range p.batch.Asks {
		v.asks[a.ID] = a
	}
	for _, id := range p.batch.Answered {
		delete(v.asks, id)
	}
	for id := range p.effects.confirmed {
		if v.recs[id] != nil {
			v.seen[id] = true
		}
	}
	for id, err := range p.effects.faults {
		switch {
		case err == "":
			delete(v.faults, id)
		case v.recs[id] != nil: // else it is gone already, and nobody would take the fault off
			v.faults[id] = err
		}
	}
	if p.effects.fresh[""] > v.freshAll {
		v.relisted = p.effects.relisted
	}
	v.refresh(p.effects.fresh)
	if len(p.effects.fresh)+len(p.batch.Asks)+len(p.batch.Answered)+len(p.batch.Gone) > 0 {
		close(v.changed)
		v.changed = make(chan struct{})
	}
}

// moveTo sets the position of a view that a new epoch begins with.
func (v *view) moveTo(at timestamps.Position) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.position = at
}

func (v *view) refresh(fresh map[string]timestamps.Tick) {
	if len(fresh) == 0 {
		return
	}
	if all := fresh[""]; all > v.freshAll {
		v.freshAll = all
		// A list covers every pod: older looks say nothing more.
		maps.DeleteFunc(v.fresh, func(_ string, t timestamps.Tick) bool { return t <= all })
	}
	for key, t := range fresh {
		if key != "" && t > v.freshAll {
			v.fresh[key] = max(v.fresh[key], t)
		}
	}
	v.forgetLooks()
}

// maxLooks is how many looks at single pods are remembered between two full
// lists. A mode without periodic lists would else remember each pod that ever
// was, and each key that anybody ever asked for.
const maxLooks = 4096

// forgetLooks drops the older half of the looks when there are too many. Who
// waits for one has been woken by it long before.
func (v *view) forgetLooks() {
	if len(v.fresh) <= maxLooks {
		return
	}
	ticks := slices.Sorted(maps.Values(v.fresh))
	middle := ticks[len(ticks)/2]
	maps.DeleteFunc(v.fresh, func(_ string, t timestamps.Tick) bool { return t < middle })
}

func (v *view) put(r *store.Record) {
	if old := v.recs[r.ID]; old != nil && old.PodKey() != r.PodKey() {
		v.unplace(old)
	}
	v.recs[r.ID] = r
	key := r.PodKey()
	if v.pods[key] == nil {
		v.pods[key] = map[string]struct{}{}
	}
	v.pods[key][r.ID] = struct{}{}
}

func (v *view) drop(id string) {
	if old := v.recs[id]; old != nil {
		v.unplace(old)
	}
	delete(v.recs, id)
	delete(v.seen, id)
	delete(v.faults, id)
}

func (v *view) unplace(r *store.Record) {
	key := r.PodKey()
	delete(v.pods[key], r.ID)
	if len(v.pods[key]) == 0 {
		delete(v.pods, key)
	}
}

func (v *view) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.ended {
		v.ended = true
		close(v.changed)
	}
}

// pod composes one pod; the caller holds the lock.
func (v *view) pod(key string) (Pod, bool) {
	p := Pod{Key: key, Position: v.position, Fresh: max(v.freshAll, v.fresh[key])}
	for id := range v.pods[key] {
		e, ok := v.entity(id)
		if !ok {
			continue
		}
		if e.Kind == store.KindSandbox {
			p.Sandboxes = append(p.Sandboxes, e)
		} else {
			p.Containers = append(p.Containers, e)
		}
	}
	slices.SortFunc(p.Sandboxes, func(a, b Entity) int { return newerSandbox(b.Record, a.Record) })
	slices.SortFunc(p.Containers, func(a, b Entity) int {
		if c := compareIdentity(&a.Identity, &b.Identity); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return p, len(p.Sandboxes)+len(p.Containers) > 0
}
