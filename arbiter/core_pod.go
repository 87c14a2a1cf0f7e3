package arbiter

import (
	"cmp"

	"github.com/plegd/plegd/store"
)

// newerSandbox orders the sandboxes of one pod: ready before not, then by
// attempt, then by when the agent first saw them (O7). It returns a positive
// number if a is the more current one.
func newerSandbox(a, b *store.Record) int {
	return cmp.Or(
		compareBool(a.State == store.StateUp, b.State == store.StateUp),
		cmp.Compare(a.Identity.Attempt, b.Identity.Attempt),
		cmp.Compare(a.FirstSeen, b.FirstSeen),
		cmp.Compare(a.ID, b.ID),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// podIP returns the first address of the pod's current sandbox. An address is
// kept after the network was torn down and never shown for another sandbox.
func (c *Core) podIP(key string) string {
	var current *store.Record
	for id := range c.sandboxes[key] { // newerSandbox decides in any order
		if e := c.ents[id]; e != nil && !e.rec.Provisional && (current == nil || newerSandbox(&e.rec, current) > 0) {
			current = &e.rec
		}
	}
	if current == nil || len(current.IPs) == 0 {
		return ""
	}
	return current.IPs[0]
}
