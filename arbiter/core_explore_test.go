package arbiter

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/store"
)

func sandboxThing(id, ip string, attempt uint32) thing {
	return thing{kind: store.KindSandbox, id: id, sandbox: id, pod: "U1", attempt: attempt, createdAt: start + 1, ip: ip}
}

func containerThing(id string, code int32) thing {
	return thing{
		kind: store.KindContainer, id: id, sandbox: "A", pod: "U1", createdAt: start + 2, startedAt: start + 3,
		exit: store.Exit{Code: code, FinishedAt: start + 4, Reason: "Error"},
	}
}

// smallWorlds are the worlds that are gone through. A is a sandbox with the
// container C.
func smallWorlds() []*smallWorld {
	a, c := sandboxThing("A", "10.0.0.5", 0), containerThing("C", 7)
	ready := version(0).with(0, up)
	return []*smallWorld{{
		name:   "container of a known sandbox",
		things: []thing{a, c}, moves: []bool{false, true}, at: ready, known: true, faults: 2, late: 4,
	}, {
		name:   "container of a sandbox, agent just started",
		things: []thing{a, c}, moves: []bool{false, true}, at: ready, faults: 1, late: 4,
	}, {
		name:   "sandbox and container",
		things: []thing{a, c}, moves: []bool{true, true}, faults: 2, late: 4, limits: Limits{Tombstones: 1},
	}, {
		name:   "two containers",
		things: []thing{a, c, containerThing("D", 8)}, moves: []bool{false, true, true}, at: ready, known: true,
		faults: 2, late: 4, limits: Limits{Tombstones: 1},
	}, {
		name:   "sandbox and the next of its pod",
		things: []thing{a, sandboxThing("B", "10.0.0.6", 1)}, moves: []bool{true, true}, at: ready, known: true,
		faults: 2, late: 4, limits: Limits{Tombstones: 1},
	}}
}

// TestExploreSmallWorlds goes through all that can happen in small worlds, as
// far as there is time. `make explore` gives it more.
func TestExploreSmallWorlds(t *testing.T) {
	limit := 4 * time.Second
	if text := os.Getenv("PLEGD_EXPLORE_MINUTES"); text != "" {
		minutes, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("PLEGD_EXPLORE_MINUTES=%q: want a number of minutes for each world", text)
		}
		limit = time.Duration(minutes * float64(time.Minute))
	}
	for _, w := range smallWorlds() {
		t.Run(strings.ReplaceAll(w.name, " ", "_"), func(t *testing.T) {
			s := newSearch(w, 2)
			began := time.Now()
			s.deadline = began.Add(limit)
			all := s.run(1000, func() { t.Log(s.summary(time.Since(began))) })
			if s.wrong != nil {
				text, _, err := w.retell(s.wrong)
				t.Errorf("after %d states: %s\n%s%v", s.states.Load(), s.wrong.why, text, err)
			}
			t.Logf("%s, all: %t", s.summary(time.Since(began)), all)
		})
	}
}

// walk goes on by chance from the first state of a world.
func (s *search) walk(rng *rand.Rand, most int) (*node, []action) {
	n, u := newNode(s.w), &said{}
	n.become(s.root)
	var path []action
	for range rng.IntN(most) + 1 {
		list := n.actions(s.w, nil)
		a := list[rng.IntN(len(list))]
		if n.do(s.w, u, a) != "" {
			break
		}
		path = append(path, a)
	}
	return n, path
}

// TestExploreSameDigestSameFuture: where two ways lead to states that are taken
// for one, the same can happen next, the same is told, and the states that come
// of it are taken for one again. So nothing is lost by going on from one.
func TestExploreSameDigestSameFuture(t *testing.T) {
	for i, w := range smallWorlds() {
		s := newSearch(w, 1)
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		ways := map[uint64][]action{}
		merged := 0
		for range 20_000 {
			n, path := s.walk(rng, 14)
			d := new(naming).digest(w, n)
			other, ok := ways[d]
			if !ok {
				ways[d] = path
				continue
			}
			if !slices.Equal(other, path) {
				merged++
				if !s.sameFuture(t, other, path) {
					break
				}
			}
		}
		if merged < 100 {
			t.Errorf("%s: only %d pairs", w.name, merged)
		}
	}
}

func (s *search) sameFuture(t *testing.T, a, b []action) bool {
	t.Helper()
	w := s.w
	at := func(path []action, more ...action) (*node, string) {
		n, u, why := newNode(w), &said{}, ""
		n.become(s.root)
		for _, x := range append(slices.Clone(path), more...) {
			n.mem.events = nil
			why = n.do(w, u, x)
		}
		return n, why
	}
	explain := func(why string, more ...action) bool {
		for _, p := range [][]action{a, b} {
			text, _, _ := w.retell(&counterexample{path: append(append(slices.Clone(s.script), p...), more...), why: why})
			t.Errorf("%s:\n%s", w.name, text)
		}
		return false
	}
	na, _ := at(a)
	nb, _ := at(b)
	list := na.actions(w, nil)
	if !slices.Equal(list, nb.actions(w, nil)) {
		return explain("not the same can happen")
	}
	for _, x := range list {
		na, whyA := at(a, x)
		nb, whyB := at(b, x)
		if whyA != whyB || told(na) != told(nb) {
			return explain("not the same is told: "+whyA+", "+whyB, x)
		}
		if new(naming).digest(w, na) != new(naming).digest(w, nb) {
			return explain("not the same comes of it", x)
		}
	}
	return true
}

// told is what the last step journaled, but for sources and times.
func told(n *node) string {
	var b strings.Builder
	for i := range n.mem.events {
		ev := n.mem.events[i]
		ev.OccurredAt, ev.Source = 0, 0
		b.WriteString(printEvent(&ev) + "\n")
	}
	return b.String()
}

// TestExploreRetells: what is printed for a counterexample leads another core
// to the same end.
func TestExploreRetells(t *testing.T) {
	for i, w := range smallWorlds() {
		s := newSearch(w, 1)
		rng := rand.New(rand.NewPCG(2, uint64(i)))
		for range 300 {
			n, path := s.walk(rng, 40)
			text, r, err := w.retell(&counterexample{path: append(slices.Clone(s.script), path...), why: "nothing"})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			want, got := shown(&n.rig), shown(r)
			if want != got {
				t.Fatalf("%s: told again it is\n%s, not\n%s\n%s", w.name, got, want, text)
			}
		}
	}
}

// shown is what a core holds; its horizon may be a few ms off.
func shown(r *rig) string {
	text, _, _ := strings.Cut((&transcript{rig: r}).show(), "horizon")
	return text
}
