package arbiter

import "sync"

// inbox is the queue in front of the loop. Events are bounded by number and
// size; answers are bounded by the calls that may be in flight, and full lists
// among them by keeping the newest two, which is what two witnesses need.
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
	if isFullList(in) {
		q.dropOlderLists()
	}
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

// dropOlderLists keeps room for one more full list: while the loop is held up,
// relists go on, and only the newest matter.
func (q *inbox) dropOlderLists() {
	first, n := -1, 0
	for i, in := range q.items {
		if isFullList(in) {
			if n++; first < 0 {
				first = i
			}
		}
	}
	if n >= 2 {
		q.dropped(q.items[first].(*ListSeen))
		q.items = append(q.items[:first], q.items[first+1:]...)
	}
}

func isFullList(in Input) bool {
	l, ok := in.(*ListSeen)
	return ok && l.Scope.All()
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
