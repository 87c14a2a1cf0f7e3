package generic

import (
	"cmp"
	"container/heap"
	"time"

	"golang.org/x/time/rate"

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
//     last time starts there. While others wait for a slot, and calls that work
//     are quick, a tenth of patience is enough: ten times as many can hang at
//     once as there are slots, and nobody waits for them longer than patience.
//     The slow lane has hangFactor*podLimit places for each slot of the fast
//     one, so that many pods can hang with all that is in them.
//   - Entities that are known go before those that nothing but old events speaks
//     of, within a pod and between pods: a storm of events about ids that nobody
//     knows holds up none of the questions that matter.
//   - The calls of all of them together are spaced by a token bucket.
//   - What timed out probably goes on in the runtime, which tends to ignore
//     cancellation (containerd/containerd#13814). It is not asked again before
//     hold has passed, so that hung calls don't pile up there.
type scheduler struct {
	slots                  [2]int // of each lane
	gap, patience, holdFor time.Duration

	calls *rate.Limiter // of the calls that tasks make

	waiting   taskHeap
	queued    map[arbiter.ActionKey]*task // all that do not run, wherever they wait
	lanes     [2]lane
	tokensAt  time.Duration // when the bucket has enough for the next task; 0: it has
	throttled uint64        // tasks that had to wait for the bucket
	pods      map[string]*podTasks
	running   map[arbiter.ActionKey]*task
	same      map[arbiter.ActionKey]*task // waits for the same question to finish
	fresh     []*task                     // running in the fast lane, oldest first
	slow      map[arbiter.ActionKey]slowMark
	tardy     bool    // the call that ended last was none of the quick ones
	rounds    []round // that began, oldest first
	swept     time.Duration
	seq       uint64
}

// The lanes.
const (
	fastLane = 0
	slowLane = 1
)

// podLimit is how many questions of one pod may be in flight: one that hangs
// and one that shows that the rest of the pod is well.
const podLimit = 2

// hangFactor: at the default 64 pods, half of those of a full node, can hang
// with two calls each. A call that hangs costs little, but keeps its place for as
// long as a call may take.
const hangFactor = 8

// haste is the part of patience that is left while others wait.
const haste = 10

// slowMemory is for how long it is remembered that a question was slow. Only
// entities that are asked about again and again matter.
const slowMemory = 10 * time.Minute

type lane struct {
	queue   [2][]*task // of each rank
	running int
}

// first returns the rank whose turn it is.
func (l *lane) first() (rank int, ok bool) {
	for rank := range l.queue {
		if len(l.queue[rank]) > 0 {
			return rank, true
		}
	}
	return 0, false
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
	delayed bool      // had to wait for the bucket
	in      *taskHeap // where it waits for a moment or for its pod; nil: elsewhere
	at      int       // its place in that heap
	seq     uint64    // first come, first served
}

// rank is 0 for what goes first.
func (t *task) rank() int {
	if t.action.Unknown {
		return 1
	}
	return 0
}

// cost is how many calls the task makes, most often.
func (t *task) cost() int {
	if t.action.Kind == arbiter.ActStatus {
		return 1
	}
	return 2 // the two of a list
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

func newScheduler(slots int, gap, patience, hold time.Duration, calls *rate.Limiter) *scheduler {
	return &scheduler{
		slots: [2]int{fastLane: slots, slowLane: slots * podLimit * hangFactor}, gap: gap, patience: patience, holdFor: hold,
		calls: calls, queued: map[arbiter.ActionKey]*task{}, pods: map[string]*podTasks{}, running: map[arbiter.ActionKey]*task{},
		same: map[arbiter.ActionKey]*task{}, slow: map[arbiter.ActionKey]slowMark{},
	}
}

// add takes an action that is wanted at ready. One that waits already is not
// asked twice but goes at the earlier of the two times.
func (s *scheduler) add(a arbiter.Action, ready time.Duration) {
	if t := s.queued[a.Key()]; t != nil {
		s.hurry(t, a, ready)
		return
	}
	pod := a.PodKey
	if pod == "" {
		pod = a.ID
	}
	s.seq++
	t := &task{action: a, pod: pod, ready: ready, due: ready, seq: s.seq}
	s.queued[a.Key()] = t
	heap.Push(&s.waiting, t)
}

// hurry lets a task that waits go at ready, if that is earlier.
func (s *scheduler) hurry(t *task, a arbiter.Action, ready time.Duration) {
	t.ready = min(t.ready, ready)
	t.action.Unknown = t.action.Unknown && a.Unknown
	if t.in == nil {
		return // it waits for a slot, or for its like to end
	}
	t.due = min(t.due, ready) // one that waits for its pod has no time and stays so
	heap.Fix(t.in, t.at)
}

// next returns the tasks to start now, which then count as running, and when
// to call it again if nothing else happens; zero for never.
func (s *scheduler) next(now time.Duration) (start []*task, wake time.Duration) {
	s.moveOver(now)
	for again := true; again; again = s.moveOver(now) || s.isDue(now) { // serve may unblock more, and fill the queue
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
	q := &s.lanes[t.lane].queue[t.rank()]
	*q = append(*q, t)
}

// serve appends to start what the lanes have slots for, and the bucket tokens.
func (s *scheduler) serve(now time.Duration, start []*task) []*task {
	s.tokensAt = 0
	for i := range s.lanes {
		l := &s.lanes[i]
		for l.running < s.slots[i] {
			rank, ok := l.first()
			if !ok {
				break
			}
			q := &l.queue[rank]
			t := (*q)[0]
			tokens := s.calls.ReserveN(wall(now), t.cost())
			if wait := tokens.DelayFrom(wall(now)); wait > 0 {
				tokens.CancelAt(wall(now))
				s.throttle(t, now+wait)
				break
			}
			(*q)[0] = nil
			*q = (*q)[1:]
			if s.admit(t, now) {
				start = append(start, t)
			} else {
				tokens.CancelAt(wall(now))
			}
			// It may have left room: it waits elsewhere, or in the other lane.
			s.unblock(s.pods[t.pod], now)
		}
	}
	return start
}

// wall turns a moment into what the bucket counts by.
func wall(now time.Duration) time.Time { return time.Unix(0, int64(now)) }

// throttle notes that a task has to wait for the bucket.
func (s *scheduler) throttle(t *task, until time.Duration) {
	if !t.delayed {
		t.delayed = true
		s.throttled++
	}
	if s.tokensAt == 0 || until < s.tokensAt {
		s.tokensAt = until
	}
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
		s.same[key] = t
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
	delete(s.queued, key)
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
	if !timedOut {
		s.tardy = now-t.started > s.patience/haste
	}
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
	if again := s.same[key]; again != nil {
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

// leave is how long a task may keep its slot now: not as long where others wait
// for one. Where calls are slow all in all, more of them at once would not make
// the runtime any faster.
func (s *scheduler) leave() time.Duration {
	fast := &s.lanes[fastLane]
	if _, waits := fast.first(); waits && fast.running >= s.slots[fastLane] && !s.tardy {
		return s.patience / haste
	}
	return s.patience
}

// moveOver lets what has run for too long make room in the fast lane. It reports
// whether there is more room now.
func (s *scheduler) moveOver(now time.Duration) (moved bool) {
	for len(s.fresh) > 0 {
		t := s.fresh[0]
		if !t.done {
			if now < t.started+s.leave() || s.lanes[slowLane].running >= s.slots[slowLane] {
				return moved
			}
			moved = true
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
	return moved
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
	if s.tokensAt != 0 && (wake == 0 || s.tokensAt < wake) {
		wake = s.tokensAt
	}
	if len(s.fresh) > 0 && s.lanes[slowLane].running < s.slots[slowLane] {
		if at := s.fresh[0].started + s.leave(); wake == 0 || at < wake {
			wake = at
		}
	}
	return wake
}

// depth returns how many tasks wait, run, and of those run in the slow lane.
func (s *scheduler) depth() (waiting, running, slow int) {
	return len(s.queued), len(s.running), s.lanes[slowLane].running
}

// taskHeap orders tasks by when they are due, then those of known entities
// first, then by when they came.
type taskHeap []*task

func (h taskHeap) Len() int { return len(h) }
func (h taskHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].due, h[j].due), cmp.Compare(h[i].rank(), h[j].rank()), cmp.Compare(h[i].seq, h[j].seq)) < 0
}
func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements [heap.Interface].
func (h *taskHeap) Push(x any) {
	t := x.(*task)
	t.in, t.at = h, len(*h)
	*h = append(*h, t)
}

// Pop implements [heap.Interface].
func (h *taskHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	t.in = nil
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}
