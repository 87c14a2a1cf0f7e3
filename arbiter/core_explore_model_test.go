package arbiter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/plegd/plegd/store"
)

// shape is what a truth is but for times and codes.
func shape(w *truth) string {
	var parts []string
	for _, id := range sortedKeys(w.things) {
		x := w.things[id]
		parts = append(parts, fmt.Sprintf("%s %s started=%t ended=%t", id, x.state.Name(x.kind), x.startedAt != 0, x.exit.FinishedAt != 0))
	}
	return strings.Join(parts, ", ")
}

// TestSmallWorldsMoveAsTheModel: from every state of a small world the same can really
// happen to what is there, and is told by the same events, as in the model that the
// properties are compared with. A sandbox that is removed takes its containers along
// here; there it does so at times.
func TestSmallWorldsMoveAsTheModel(t *testing.T) {
	for _, w := range smallWorlds() {
		w.prepare().remember()
		moved := 0
		for _, v := range slices.Sorted(maps.Keys(w.asThey)) {
			for slot := range w.things {
				x, ok := w.truth(v).things[w.things[slot].id]
				if !ok || !w.moves[slot] {
					continue
				}
				here, there := map[string]bool{}, map[string]bool{}
				for _, p := range w.next(slot, v) {
					here[fmt.Sprintf("%s by %v", shape(w.truth(w.moved(v, slot, p))), w.told(slot, p))] = true
				}
				for how := range 3 {
					if how%2 == 1 && x.kind == store.KindSandbox && x.state == store.StateDown {
						continue // leaves its containers
					}
					m := w.truth(v)
					var kinds []EventKind
					for _, tr := range m.advance(m.things[x.id], start, how) {
						kinds = append(kinds, tr.kind)
					}
					there[fmt.Sprintf("%s by %v", shape(m), kinds)] = true
				}
				moved += len(here)
				if !maps.Equal(here, there) {
					t.Errorf("%s: %s moves from %s to\n%v, in the model to\n%v", w.name, x.id, shape(w.truth(v)), slices.Sorted(maps.Keys(here)), slices.Sorted(maps.Keys(there)))
				}
			}
		}
		if moved == 0 {
			t.Errorf("%s: nothing moves", w.name)
		}
	}
}
