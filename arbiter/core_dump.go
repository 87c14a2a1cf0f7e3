package arbiter

import "github.com/plegd/plegd/store"

// Missing returns what a stored state lacks, or has too much, compared with
// what the steps so far have decided: written over it, it makes the two equal.
// It holds no events. Evidence that moved alone is nothing to write, as in a
// step. It reads the whole state, so it is for when the stored one has fallen
// behind, not for every step.
func (c *Core) Missing(s *store.Snapshot) store.Batch {
	var b store.Batch
	stored := make(map[string]*store.Record, len(s.Records))
	for _, r := range s.Records {
		if e := c.ents[r.ID]; e == nil || e.rec.Kind != r.Kind {
			b.Gone = append(b.Gone, store.Key{Kind: r.Kind, ID: r.ID})
			continue
		}
		stored[r.ID] = r
	}
	for _, id := range sortedKeys(c.ents) {
		if r := c.ents[id].pub; r != nil && !r.SameContent(stored[id]) {
			b.Records = append(b.Records, r)
		}
	}
	clear(stored)
	for _, t := range s.Tombstones {
		if c.tombs[t.ID] == nil {
			b.Forgotten = append(b.Forgotten, t.ID)
			continue
		}
		stored[t.ID] = t
	}
	for _, id := range sortedKeys(c.tombs) {
		if t := c.tombs[id]; !t.SameContent(stored[id]) {
			b.Tombstones = append(b.Tombstones, t)
		}
	}
	asked := make(map[string]store.Ask, len(s.Asks))
	for _, a := range s.Asks {
		if _, ok := c.asks[a.ID]; !ok {
			b.Answered = append(b.Answered, a.ID)
			continue
		}
		asked[a.ID] = *a
	}
	for _, id := range sortedKeys(c.asks) {
		if a := c.asks[id]; a != asked[id] {
			b.Asks = append(b.Asks, &a)
		}
	}
	return b
}
