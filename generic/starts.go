package generic

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/note"
	"github.com/plegd/plegd/store"
)

const (
	// startLooks is how often a container that was created and has not started is asked
	// about: after one, two, four and eight base periods.
	startLooks = 4
	// startsListed is how many of them are asked about one by one at least; where there are
	// more than one for each entriesPerLook of the last full list's entries, a full list is
	// made instead. A status is some four entries in bytes, and a call of its own.
	startsListed   = 16
	entriesPerLook = 16
	// maxStarts bounds how many such containers are remembered, of 200 bytes or so.
	maxStarts = 10_000
)

// starts are the containers that were created and have not started yet. No runtime
// sends an event for a start that fails, so while the period is long they are asked
// about: a kubelet starts a container as soon as it is created, and one that has not
// started after a base period has most likely failed to.
type starts struct {
	byID map[string]*awaited
	soon awaitedHeap
	last time.Duration // when some were asked about last, later after a list; zero: never
	node int           // entries of the last full list
}

// awaited is a container that is to start.
type awaited struct {
	id, pod string
	created time.Duration // monotonic
	due     time.Duration
	looks   int // that were made
	at      int // its place in the heap
}

func newStarts() starts { return starts{byID: map[string]*awaited{}} }

// told takes an event of the journal and reports whether one more has to start.
func (s *starts) told(ev *store.Event, now, base time.Duration) bool {
	id := ev.Container.ID
	a := s.byID[id]
	switch ev.Type {
	case store.ContainerCreated:
		if a == nil && len(s.byID) < maxStarts {
			a = &awaited{id: id, pod: ev.PodKey(), created: now, due: now + base}
			s.byID[id] = a
			heap.Push(&s.soon, a)
			return true
		}
	case store.ContainerStarted, store.ContainerDied, store.ContainerRemoved:
		if a != nil {
			s.drop(a)
		}
	}
	return false
}

func (s *starts) drop(a *awaited) {
	heap.Remove(&s.soon, a.at)
	delete(s.byID, a.id)
}

// next returns when to take the next ones. They are taken half a base period apart, so
// that many are seen to be many.
func (s *starts) next(base time.Duration) (at time.Duration, some bool) {
	if len(s.soon) == 0 {
		return 0, false
	}
	at = s.soon[0].due
	if s.last != 0 {
		at = max(at, s.last+base/2)
	}
	return at, true
}

// take returns those that are to be asked about now. What has not started after all of
// its looks is left to the periodic relist.
func (s *starts) take(now, base time.Duration) (due []*awaited) {
	if at, some := s.next(base); !some || at > now {
		return nil
	}
	s.last = now
	for len(s.soon) > 0 && s.soon[0].due <= now {
		a := s.soon[0]
		due = append(due, a)
		a.looks++
		if a.looks == startLooks {
			s.drop(a)
			continue
		}
		a.due = a.created + base<<a.looks
		heap.Fix(&s.soon, 0)
	}
	return due
}

// Told takes an event that the loop has published, in the order of the journal. A
// container that was created and hasn't started after the base period is asked about,
// and again after two, four and eight of them, while the period is longer: no runtime
// sends an event for a start that fails. It never blocks.
func (r *Relister) Told(ev *store.Event) {
	if r.cfg.NoPeriod {
		return
	}
	r.mu.Lock()
	more := r.starts.told(ev, r.cfg.Clock.Mono(), r.period.base)
	r.mu.Unlock()
	if more {
		note.Leave(r.inspectWake)
	}
}

// takeStartsLocked asks about what has not started: about each, or with a full list
// about many. What is many grows with the node, since lists do. At the base period the
// next list is soon enough.
func (r *Relister) takeStartsLocked(now time.Duration) (listed bool) {
	due := r.starts.take(now, r.period.base)
	switch {
	case r.period.current <= r.period.base:
		return false
	case len(due) > max(startsListed, r.starts.node/entriesPerLook):
		r.starts.last += r.period.base / 2 // lists are a base period apart
		r.askLocked(now)
		return true
	}
	for _, a := range due {
		r.inbox = append(r.inbox, arbiter.Action{
			Kind: arbiter.ActStatus, Entity: store.KindContainer, ID: a.id, PodKey: a.pod, NotBefore: int64(now),
		})
	}
	return false
}

// startsDue returns when takeStartsLocked has something to do.
func (r *Relister) startsDue() (at time.Duration, some bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.starts.next(r.period.base)
}

// awaitedHeap orders containers by when they are due.
type awaitedHeap []*awaited

func (h awaitedHeap) Len() int { return len(h) }
func (h awaitedHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].due, h[j].due), cmp.Compare(h[i].id, h[j].id)) < 0
}
func (h awaitedHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements [heap.Interface].
func (h *awaitedHeap) Push(x any) {
	a := x.(*awaited)
	a.at = len(*h)
	*h = append(*h, a)
}

// Pop implements [heap.Interface].
func (h *awaitedHeap) Pop() any {
	old := *h
	a := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return a
}
