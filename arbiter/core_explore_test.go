package arbiter

import (
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
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

// smallWorlds are the worlds that are gone through. A and B are sandboxes, C
// and D containers of A. Without a fault the first two are small enough to be
// gone through to their end.
func smallWorlds() []*smallWorld {
	a, c := sandboxThing("A", "10.0.0.5", 0), containerThing("C", 7)
	ready := version(0).with(0, up)
	return []*smallWorld{{
		name: "container", things: []thing{a, c}, moves: []bool{false, true}, at: ready, known: true,
		faults: 1, steady: true, calls: 2, late: 1, share: 3,
	}, {
		name: "container and one call", things: []thing{a, c}, moves: []bool{false, true}, at: ready, known: true,
		faults: 2, steady: true, calls: 1, late: 1, share: 3,
	}, {
		name: "container and a liar", things: []thing{a, c}, moves: []bool{false, true}, at: ready.with(1, up), known: true,
		faults: 2, steady: true, twice: true, calls: 2, late: 1, share: 2,
	}, {
		name: "container and many calls", things: []thing{a, c}, moves: []bool{false, true}, at: ready, known: true,
		faults: 2, calls: 4, late: 4, share: 1,
	}, {
		name: "first relist", things: []thing{a, c}, moves: []bool{false, true}, at: ready,
		faults: 2, calls: 4, late: 4, share: 1,
	}, {
		name: "sandbox and container", things: []thing{a, c}, moves: []bool{true, true},
		faults: 2, calls: 4, late: 4, limits: Limits{Tombstones: 1}, share: 2,
	}, {
		name: "two containers", things: []thing{a, c, containerThing("D", 8)}, moves: []bool{false, true, true}, at: ready, known: true,
		faults: 2, calls: 4, late: 4, limits: Limits{Tombstones: 1}, share: 2,
	}, {
		name: "next sandbox", things: []thing{a, sandboxThing("B", "10.0.0.6", 1)}, moves: []bool{true, true}, at: ready, known: true,
		faults: 2, calls: 4, late: 4, limits: Limits{Tombstones: 1}, share: 2,
	}}
}

// TestExploreSmallWorlds goes breadth-first through all that can happen in
// small worlds, up to a number of states; `make explore` goes on for longer
// (docs/proof.md).
func TestExploreSmallWorlds(t *testing.T) {
	wanted := os.Getenv("PLEGD_EXPLORE_WORLD")
	only, err := regexp.Compile(wanted)
	if err != nil {
		t.Fatalf("WORLD=%q (PLEGD_EXPLORE_WORLD): %v", wanted, err)
	}
	var names []string
	worlds := slices.DeleteFunc(smallWorlds(), func(w *smallWorld) bool {
		names = append(names, w.name)
		return !only.MatchString(w.name)
	})
	if len(worlds) == 0 {
		t.Fatalf("WORLD=%q (PLEGD_EXPLORE_WORLD): must match one of %s", wanted, strings.Join(names, ", "))
	}
	shares := 0
	for _, w := range worlds {
		w.faults = setting(t, "FAULTS", w.faults)
		shares += w.share
	}
	seconds := setting(t, "SECONDS", 0)
	if seconds > 0 {
		// Next to nothing is garbage: collected seldom, a tenth more states a second.
		defer debug.SetGCPercent(debug.SetGCPercent(1000))
	}
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	for _, w := range worlds {
		t.Run(strings.ReplaceAll(w.name, " ", "_"), func(t *testing.T) {
			s := newSearch(w, runtime.GOMAXPROCS(0))
			began := time.Now()
			if s.mostStates = 4_000; end.After(began) {
				// What a world leaves is for those after it.
				s.mostStates, s.deadline = math.MaxInt64, began.Add(time.Until(end)*time.Duration(w.share)/time.Duration(shares))
			}
			all := s.run(setting(t, "DEPTH", math.MaxInt), func() { t.Log(s.summary(time.Since(began))) })
			if s.wrong != nil {
				text, _, err := w.retell(s.wrong)
				t.Errorf("%s, at depth %d after %d states: %v\n%s", s.wrong.why, s.depth+1, s.states.Load(), err, text)
			}
			t.Logf("%s; nothing left: %t", s.summary(time.Since(began)), all)
		})
		shares -= w.share
	}
}

// setting is a number that `make explore` may set.
func setting(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv("PLEGD_EXPLORE_" + name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("PLEGD_EXPLORE_%s=%q: want a whole number", name, text)
	}
	return n
}

// walk goes on by chance from the first state of a world.
func (s *search) walk(rng *rand.Rand, most int) (*node, []action) {
	n, u := newNode(s.w), &said{}
	n.become(s.root, true)
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
		for range setting(t, "WALKS", 1500) {
			n, path := s.walk(rng, 10)
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
		if merged < 50 {
			t.Errorf("%s: only %d pairs", w.name, merged)
		}
	}
}

func (s *search) sameFuture(t *testing.T, a, b []action) bool {
	t.Helper()
	w := s.w
	at := func(path []action, more ...action) (*node, string) {
		n, u, why := newNode(w), &said{}, ""
		n.become(s.root, true)
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
		for range 50 {
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
