package generic

import (
	"container/heap"
	"time"

	"github.com/plegd/plegd/arbiter"
)

// scheduler decides which question goes to the runtime when. It has no clock
// and starts nothing; times are monotonic.
//
//   - At most one question per action key is in flight. A pod has at most one
//     in the fast lane and podLimit in all.
//   - Questions of one pod go out in rounds: what is there when a round begins
//     goes together, what comes later waits until gap after the beginning. So a
//     first question goes at once and a burst costs one more round.
//   - There are two lanes. A question that has taken longer than patience moves
//     from the fast lane to the slow one and makes room; one that did so the
//     last time starts there. The slow lane has podLimit places for each slot
//     of the fast one: as many pods as there are slots can hang with all that
//     is in them, and nobody else waits for them longer than patience.
//   - What timed out probably goes on in the runtime, which tends to ignore
//     cancellation (containerd/containerd#13814). It is not asked again before
//     hold has passed, so that hung calls don't pile up there.
type scheduler struct {
	slots                  [2]int // of each lane
	gap, patience, holdFor time.Duration

	waiting taskHeap
	lanes   [2]lane
	pods    map[string]*podTasks
	running map[arbiter.ActionKey]*task
	same    map[arbiter.ActionKey][]*task // wait for the same question to finish
	fresh   []*task                       // running in the fast lane, oldest first
	slow    map[arbiter.ActionKey]slowMark
	rounds  []round // that began, oldest first
	swept   time.Duration
	seq     uint64
}

// The lanes.
const (
	fastLane = 0
	slowLane = 1
)

// podLimit is how many questions of one pod may be in flight: one that hangs
// and one that shows that the rest of the pod is well.
const podLimit = 2

// slowMemory is for how long it is remembered that a question was slow. Only
// entities that are asked about again and again matter.
const slowMemory = 10 * time.Minute

type lane struct {
	queue   []*task
	running int
}

// task is one action on its way.
type task struct {
	action  arbiter.Action
	pod     string
	ready   time.Duration // when it was wanted
	due     time.Duration // when to look at it again
	started time.Duration
	lane    int
	done    bool
	seq     uint64 // first come, first served
}

type podTasks struct {
	running int // in both lanes
	fast    int // of those in the fast lane
	began   bool
	round   time.Duration // when the last round began
	blocked [2]taskHeap   // of each lane: wait for the pod to have room there
}

// room tells whether one more question of the pod may go in a lane.
func (p *podTasks) room(lane int) bool {
	return p.running < podLimit && (lane != fastLane || p.fast == 0)
}

// idle tells whether nothing of the pod runs or waits for what runs.
func (p *podTasks) idle() bool {
	return p.running == 0 && len(p.blocked[fastLane])+len(p.blocked[slowLane]) == 0
}

type round struct {
	pod   string
	began time.Duration
}

type slowMark struct {
	seen  time.Duration
	until time.Duration // not to be asked before
}

func newScheduler(slots int, gap, patience, hold time.Duration) *scheduler {
	return &scheduler{
		slots: [2]int{fastLane: slots, slowLane: slots * podLimit}, gap: gap, patience: patience, holdFor: hold,
		pods: map[string]*podTasks{}, running: map[arbiter.ActionKey]*task{},
		same: map[arbiter.ActionKey][]*task{}, slow: map[arbiter.ActionKey]slowMark{},
	}
}

// add takes an action that is wanted at ready.
func (s *scheduler) add(a arbiter.Action, ready time.Duration) {
	pod := a.PodKey
	if pod == "" {
		pod = a.ID
	}
	s.seq++
	heap.Push(&s.waiting, &task{action: a, pod: pod, ready: ready, due: ready, seq: s.seq})
}

// next returns the tasks to start now, which then count as running, and when
// to call it again if nothing else happens; zero for never.
func (s *scheduler) next(now time.Duration) (start []*task, wake time.Duration) {
	s.moveOver(now)
	for again := true; again; again = s.isDue(now) { // serve may unblock more
		for s.isDue(now) {
			s.enqueue(heap.Pop(&s.waiting).(*task), now)
		}
		start = s.serve(now, start)
	}
	s.forgetRounds(now)
	return start, s.wake()
}

// isDue tells whether a task that waits for a moment has come to it.
func (s *scheduler) isDue(now time.Duration) bool {
	return len(s.waiting) > 0 && s.waiting[0].due <= now
}

// enqueue puts a task at the end of its lane.
func (s *scheduler) enqueue(t *task, now time.Duration) {
	t.lane = fastLane
	if m, ok := s.slow[t.action.Key()]; ok && now < m.seen+slowMemory {
		t.lane = slowLane
	}
	s.lanes[t.lane].queue = append(s.lanes[t.lane].queue, t)
}

// serve appends to start what the lanes have slots for.
func (s *scheduler) serve(now time.Duration, start []*task) []*task {
	for i := range s.lanes {
		l := &s.lanes[i]
		for len(l.queue) > 0 && l.running < s.slots[i] {
			t := l.queue[0]
			l.queue[0] = nil
			l.queue = l.queue[1:]
			if s.admit(t, now) {
				start = append(start, t)
			}
			// It may have left room: it waits elsewhere, or in the other lane.
			s.unblock(s.pods[t.pod], now)
		}
	}
	return start
}

// admit counts a task as running, or puts it where it has to wait.
func (s *scheduler) admit(t *task, now time.Duration) bool {
	key := t.action.Key()
	p := s.pods[t.pod]
	if p == nil {
		p = &podTasks{}
		s.pods[t.pod] = p
	}
	switch joins := p.began && t.ready <= p.round; {
	case s.running[key] != nil:
		s.same[key] = append(s.same[key], t)
		return false
	case !p.room(t.lane):
		t.due = 0 // so that the pod's tasks are in the order in which they came
		heap.Push(&p.blocked[t.lane], t)
		return false
	case s.slow[key].until > now:
		t.due = s.slow[key].until
		heap.Push(&s.waiting, t)
		return false
	case p.began && !joins && now < p.round+s.gap:
		t.due = p.round + s.gap
		heap.Push(&s.waiting, t)
		return false
	case !joins:
		p.began, p.round = true, now
		s.rounds = append(s.rounds, round{t.pod, now})
	}
	t.started = now
	p.running++
	s.running[key] = t
	s.lanes[t.lane].running++
	if t.lane == fastLane {
		p.fast++
		s.fresh = append(s.fresh, t)
	}
	return true
}

// finish takes back a task that has come to an end.
func (s *scheduler) finish(t *task, now time.Duration, timedOut bool) {
	key := t.action.Key()
	t.done = true
	delete(s.running, key)
	s.lanes[t.lane].running--
	switch {
	case timedOut:
		s.slow[key] = slowMark{seen: now, until: now + s.holdFor}
	case now-t.started > s.patience:
		s.slow[key] = slowMark{seen: now}
	default:
		delete(s.slow, key)
	}
	s.sweep(now)

	p := s.pods[t.pod]
	p.running--
	if t.lane == fastLane {
		p.fast--
	}
	for _, again := range s.same[key] {
		again.due = now
		heap.Push(&s.waiting, again)
	}
	delete(s.same, key)
	s.unblock(p, now)
	if p.idle() && now >= p.round+s.gap {
		delete(s.pods, t.pod)
	}
}

// unblock lets the first of a pod's tasks that wait for room in a lane try
// again, behind those of other pods. One is enough: whenever it doesn't take
// the room, unblock is called again. To let all of them try each time would
// cost a pod of n containers n*n tries.
func (s *scheduler) unblock(p *podTasks, now time.Duration) {
	for lane := range p.blocked {
		if p.room(lane) && len(p.blocked[lane]) > 0 {
			t := heap.Pop(&p.blocked[lane]).(*task)
			t.due = now
			heap.Push(&s.waiting, t)
		}
	}
}

// moveOver lets what has run longer than patience make room in the fast lane.
func (s *scheduler) moveOver(now time.Duration) {
	for len(s.fresh) > 0 {
		t := s.fresh[0]
		if !t.done {
			if now < t.started+s.patience || s.lanes[slowLane].running >= s.slots[slowLane] {
				return
			}
			t.lane = slowLane
			s.lanes[fastLane].running--
			s.lanes[slowLane].running++
			s.slow[t.action.Key()] = slowMark{seen: now}
			p := s.pods[t.pod]
			p.fast--
			s.unblock(p, now)
		}
		s.fresh[0] = nil
		s.fresh = s.fresh[1:]
	}
}

// amnesty forgets what was slow: the runtime as a whole had hung, so nothing
// is known about single entities.
func (s *scheduler) amnesty() {
	clear(s.slow)
	for _, t := range s.waiting {
		t.due = t.ready
	}
	heap.Init(&s.waiting)
}

// sweep drops marks that nobody came back for, once in a while.
func (s *scheduler) sweep(now time.Duration) {
	if now < s.swept+slowMemory {
		return
	}
	s.swept = now
	for k, m := range s.slow {
		if now >= m.seen+slowMemory {
			delete(s.slow, k)
		}
	}
}

// forgetRounds drops pods whose gap has passed and that are idle.
func (s *scheduler) forgetRounds(now time.Duration) {
	for len(s.rounds) > 0 && s.rounds[0].began+s.gap <= now {
		r := s.rounds[0]
		s.rounds = s.rounds[1:]
		if p := s.pods[r.pod]; p != nil && p.round == r.began && p.idle() {
			delete(s.pods, r.pod)
		}
	}
}

func (s *scheduler) wake() (wake time.Duration) {
	if len(s.waiting) > 0 {
		wake = max(s.waiting[0].due, 1)
	}
	if len(s.fresh) > 0 && s.lanes[slowLane].running < s.slots[slowLane] {
		if at := s.fresh[0].started + s.patience; wake == 0 || at < wake {
			wake = at
		}
	}
	return wake
}

// depth returns how many tasks wait, run, and of those run in the slow lane.
func (s *scheduler) depth() (waiting, running, slow int) {
	waiting = len(s.waiting) + len(s.lanes[fastLane].queue) + len(s.lanes[slowLane].queue)
	for _, p := range s.pods {
		waiting += len(p.blocked[fastLane]) + len(p.blocked[slowLane])
	}
	for _, again := range s.same {
		waiting += len(again)
	}
	return waiting, len(s.running), s.lanes[slowLane].running
}

// taskHeap orders tasks by when they are due, then by when they came.
type taskHeap []*task

func (h taskHeap) Len() int { return len(h) }
func (h taskHeap) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	return h[i].seq < h[j].seq
}
func (h taskHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements [heap.Interface].
func (h *taskHeap) Push(x any) { *h = append(*h, x.(*task)) }

// Pop implements [heap.Interface].
func (h *taskHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}
