package arbiter

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/store"
)

// search goes breadth-first through all states of a small world. States are
// kept as the actions that lead to them, in order, so that what they have in
// common is gone through once: a walk over a tree with a copy on each level.
type search struct {
	w       *smallWorld
	script  []action // from nothing to the first state
	root    *node
	workers int

	visited *digestSet // states
	stilled *digestSet // states on the way from one to its stillness

	depth      int
	states     atomic.Int64 // different ones
	steps      atomic.Int64 // actions tried
	settlings  atomic.Int64 // actions done to let it be quiet
	returns    atomic.Int64 // to an earlier state, told
	deadline   time.Time
	mostStates int64
	stop       atomic.Bool

	mu    sync.Mutex
	wrong *counterexample
}

// counterexample is a shortest way to what breaks the promise.
type counterexample struct {
	path []action
	why  string
}

// frontier is a part of a layer: paths in order, each as how much it shares
// with the one before, how much is its own, and that.
type frontier struct {
	words []uint32
	n     int
}

const frontierPart = 1 << 9 // paths

func (f *frontier) add(path, before []action) {
	shared := 0
	for f.n > 0 && shared < len(before) && shared < len(path) && path[shared] == before[shared] {
		shared++
	}
	f.words = append(f.words, uint32(shared)<<16|uint32(len(path)-shared))
	for _, a := range path[shared:] {
		f.words = append(f.words, uint32(a))
	}
	f.n++
}

func newSearch(w *smallWorld, workers int) *search {
	w.prepare().remember()
	s := &search{w: w, workers: workers, visited: newDigestSet(), stilled: newDigestSet(), mostStates: 1 << 62}
	s.root = newNode(w)
	u := &said{}
	var script []action
	if w.known {
		rounds := 2
		for a, ok := act(doConnect, 0, 0), true; ok; a, ok = s.root.routine(&rounds) {
			if why := s.root.do(w, u, a); why != "" {
				panic("before the first action: " + why)
			}
			script = append(script, a)
		}
		s.root.left, s.root.used, s.root.doubted = w.faults, 0, 0
	}
	s.script = script
	return s
}

// run searches until there is no new state, to a depth, until the deadline or
// up to a number of states. It reports whether there is nothing left.
func (s *search) run(most int, progress func()) (all bool) {
	first := &worker{s: s, u: &said{}}
	first.room(2)
	s.visited.add(first.name.digest(s.w, s.root))
	s.states.Store(1)
	layer := []*frontier{{words: []uint32{0}, n: 1}}
	for s.depth = 0; s.depth < most && len(layer) > 0; {
		next := s.expand(layer)
		if s.stop.Load() {
			return false
		}
		s.depth++
		layer = next
		progress()
	}
	return len(layer) == 0
}

// expand makes the next layer.
func (s *search) expand(layer []*frontier) []*frontier {
	made := make([][]*frontier, len(layer))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range s.workers {
		wg.Go(func() {
			k := &worker{s: s, u: &said{}}
			for i := int(next.Add(1)) - 1; i < len(layer) && !s.stop.Load(); i = int(next.Add(1)) - 1 {
				made[i] = k.expand(layer[i])
				layer[i] = nil
				if !s.deadline.IsZero() && time.Now().After(s.deadline) || s.states.Load() >= s.mostStates {
					s.stop.Store(true)
				}
			}
			s.steps.Add(k.steps)
			s.settlings.Add(k.settlings)
			s.returns.Add(k.returns)
		})
	}
	wg.Wait()
	var all []*frontier
	for _, parts := range made {
		for _, f := range parts {
			if f.n > 0 {
				all = append(all, f)
			}
		}
	}
	return all
}

// worker expands parts of a layer.
type worker struct {
	s     *search
	u     *said
	name  naming
	path  []action
	nodes []*node  // nodes[d] is the state after path[:d]; nodes[0] is the root
	last  []action // the path added last
	trace []action
	way   []uint64 // digests on the way to stillness

	steps, settlings, returns int64
}

// room sees to it that there are nodes up to a level.
func (k *worker) room(level int) {
	for len(k.nodes) <= level {
		if len(k.nodes) == 0 {
			k.nodes = append(k.nodes, k.s.root)
		} else {
			k.nodes = append(k.nodes, newNode(k.s.w))
		}
	}
}

// expand tries all actions in the states of a part.
func (k *worker) expand(f *frontier) []*frontier {
	var parts []*frontier
	out := &frontier{}
	k.path = k.path[:0]
	var list []action
	words := f.words
	for range f.n {
		shared, own := int(words[0]>>16), int(words[0]&0xffff)
		k.path = k.path[:shared]
		k.room(shared + own + 2)
		for _, a := range words[1 : 1+own] {
			d := len(k.path)
			k.nodes[d+1].become(k.nodes[d], k.nodes[d].steps(action(a)))
			k.nodes[d+1].do(k.s.w, k.u, action(a))
			k.path = append(k.path, action(a))
		}
		words = words[1+own:]
		d := len(k.path)
		list = k.nodes[d].actions(k.s.w, list[:0])
		for _, a := range list {
			if k.s.stop.Load() {
				return nil
			}
			if !k.try(d, a) {
				continue
			}
			if out.n == frontierPart {
				parts = append(parts, out)
				out = &frontier{}
			}
			k.path = append(k.path, a)
			out.add(k.path, k.last)
			k.last = append(k.last[:0], k.path...)
			k.path = k.path[:d]
		}
	}
	return append(parts, out)
}

// try does one action in the state of level d and reports whether the state
// that it leads to is new.
func (k *worker) try(d int, a action) bool {
	n := k.nodes[d+1]
	n.become(k.nodes[d], k.nodes[d].steps(a))
	k.steps++
	if why := n.do(k.s.w, k.u, a); why != "" {
		k.s.fail(why, k.path, a)
		return false
	}
	for i := range n.mem.events {
		if n.mem.events[i].Change == store.ChangeRegressed {
			k.returns++
		}
	}
	if !k.s.visited.add(k.name.digest(k.s.w, n)) {
		return false
	}
	k.s.states.Add(1)
	still := k.nodes[d+2]
	still.become(n, true)
	k.trace = append(k.trace[:0], a)
	if why := still.settle(k.s.w, k.u, k.known(still), &k.trace); why != "" {
		k.s.fail(why, k.path, k.trace...)
		return true
	}
	for _, d := range k.way {
		k.s.stilled.add(d)
	}
	return true
}

// known tells whether the way on from a state that is quiet was gone to its end
// already. A way that comes back to itself has none: it goes round for ever. One
// that another worker is still on counts for nothing, since that may come round
// to this one.
func (k *worker) known(n *node) func(rounds int) bool {
	k.way = k.way[:0]
	return func(rounds int) bool {
		k.settlings++
		d := newDigest()
		d.num(k.name.digest(k.s.w, n), uint64(rounds))
		switch {
		case slices.Contains(k.way, d.h):
			return false
		case k.s.stilled.has(d.h):
			return true
		}
		k.way = append(k.way, d.h)
		return false
	}
}

func (s *search) fail(why string, path []action, more ...action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &counterexample{why: why}
	c.path = append(append(append(c.path, s.script...), path...), more...)
	if s.wrong == nil || len(c.path) < len(s.wrong.path) {
		s.wrong = c
	}
	s.stop.Store(true)
}

// summary is one line about how far it got.
func (s *search) summary(took time.Duration) string {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return fmt.Sprintf("depth %d, %d states, %d steps and %d to let it be quiet, %d returns told, in %s: %.0f states and %.0f steps a second; memory %d MiB",
		s.depth, s.states.Load(), s.steps.Load(), s.settlings.Load(), s.returns.Load(), took.Round(time.Second/10),
		float64(s.states.Load())/took.Seconds(), float64(s.steps.Load()+s.settlings.Load())/took.Seconds(), m.Sys>>20)
}

// digestSet is a set of digests for several goroutines. With n digests of 64
// bits the chance that any two states were taken for one is n*n/2^65: one in
// 13,000 for 53 million.
type digestSet struct{ shards [256]digestShard }

type digestShard struct {
	mu    sync.Mutex
	slots []uint64 // open addressing; 0 is empty
	n     int
	_     [24]byte // a cache line each
}

func newDigestSet() *digestSet {
	s := &digestSet{}
	for i := range s.shards {
		s.shards[i].slots = make([]uint64, 64)
	}
	return s
}

// add puts a digest in and reports whether it was not there.
func (s *digestSet) add(d uint64) bool {
	d = max(d, 1)
	t := &s.shards[d>>56]
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n*4 >= len(t.slots)*3 {
		old := t.slots
		t.slots = make([]uint64, 2*len(old))
		for _, d := range old {
			if d != 0 {
				t.slots[t.place(d)] = d
			}
		}
	}
	i := t.place(d)
	if t.slots[i] == d {
		return false
	}
	t.slots[i] = d
	t.n++
	return true
}

// has reports whether a digest was put in.
func (s *digestSet) has(d uint64) bool {
	d = max(d, 1)
	t := &s.shards[d>>56]
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.slots[t.place(d)] == d
}

// place is where a digest is, or where it belongs.
func (t *digestShard) place(d uint64) uint64 {
	mask := uint64(len(t.slots) - 1)
	i := d & mask
	for t.slots[i] != 0 && t.slots[i] != d {
		i = (i + 1) & mask
	}
	return i
}
