package arbiter

import (
	"slices"
	"sync"
)

// inbox is the queue in front of the loop. Events are bounded by number and
// size. Answers to the core's questions are bounded by the questions. What
// comes without being asked for goes on while a commit hangs, so of that only
// as much is kept as makes a difference; see makeRoom.
type inbox struct {
	wake    chan struct{}
	dropped func(*ListSeen) // told of lists that will not be applied

	mu        sync.Mutex
	items     []Input
	events    int
	bytes     int64
	maxEvents int
	maxBytes  int64
}

func (q *inbox) init(events int, bytes int64, dropped func(*ListSeen)) {
	q.wake, q.maxEvents, q.maxBytes, q.dropped = make(chan struct{}, 1), events, bytes, dropped
}

func (q *inbox) put(in Input) {
	q.mu.Lock()
	q.makeRoom(in)
	q.items = append(q.items, in)
	q.mu.Unlock()
	q.signal()
}

func (q *inbox) putEvent(ev *EventSeen) bool {
	size := eventSize(ev)
	q.mu.Lock()
	if q.events >= q.maxEvents || q.bytes+size > q.maxBytes && q.events > 0 {
		q.mu.Unlock()
		return false
	}
	q.events++
	q.bytes += size
	q.items = append(q.items, ev)
	q.mu.Unlock()
	q.signal()
	return true
}

// take returns all that waits, in order of arrival.
func (q *inbox) take() []Input {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items, q.events, q.bytes = nil, 0, 0
	return items
}

func (q *inbox) queued() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.events
}

func (q *inbox) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// makeRoom drops what one more input of its kind makes needless.
func (q *inbox) makeRoom(in Input) {
	switch in := in.(type) {
	case *ListSeen:
		if in.Scope.All() {
			// The newest two are kept, which is what two witnesses need.
			q.keep(1, isFullList, func(old Input) { q.dropped(old.(*ListSeen)) })
		}
	case *ListFailed:
		if in.Scope.All() {
			// The first says since when, the newest why.
			first := true
			q.keep(0, func(old Input) bool {
				if !isFailedList(old) {
					return false
				}
				spare := first
				first = false
				return !spare
			}, nil)
		}
	case *Requested:
		// A call that the newer one leads to is newer than both.
		q.keep(0, func(old Input) bool {
			r, ok := old.(*Requested)
			return ok && r.PodKey == in.PodKey
		}, nil)
	case *StreamOverflow:
		lost := in.Lost
		q.keep(0, isOverflow, func(old Input) { lost += old.(*StreamOverflow).Lost })
		in.Lost = lost
	}
}

// keep drops the oldest inputs of a kind until no more than n are left.
func (q *inbox) keep(n int, kind func(Input) bool, drop func(Input)) {
	var found []int
	for i, in := range q.items {
		if kind(in) {
			found = append(found, i)
		}
	}
	for k := range max(0, len(found)-n) {
		i := found[k] - k
		if drop != nil {
			drop(q.items[i])
		}
		q.items = slices.Delete(q.items, i, i+1)
	}
}

func isFullList(in Input) bool {
	l, ok := in.(*ListSeen)
	return ok && l.Scope.All()
}

func isFailedList(in Input) bool {
	l, ok := in.(*ListFailed)
	return ok && l.Scope.All()
}

func isOverflow(in Input) bool {
	_, ok := in.(*StreamOverflow)
	return ok
}

// eventSize is about what an event holds in memory, bytes.
func eventSize(ev *EventSeen) int64 {
	const overhead = 512 // of the structs and short strings
	n := int64(overhead)
	if ev.Sandbox != nil {
		n += overhead + int64(len(ev.Sandbox.Rest))
	}
	for i := range ev.Containers {
		n += overhead + int64(len(ev.Containers[i].Rest))
	}
	return n
}
