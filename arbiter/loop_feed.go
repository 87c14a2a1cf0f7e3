package arbiter

import (
	"errors"
	"slices"
	"sync"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// tailSize is how many published events are kept in memory for readers that
// keep up; who is further behind reads the store.
const tailSize = 4096

// feed hands published events to subscriptions. Subscriptions pull, so a
// reader that stops reading holds nothing but its own position and what it has
// read ahead, readAtOnce events at most.
//
// The tail is one history: epochs follow one another in it, and what the store
// lacks of the present epoch is all there. So a reader goes on from any
// position in it, also across a change of epoch.
type feed struct {
	store store.Store

	mu        sync.Mutex
	tail      []store.Event       // the newest published events, oldest first; Volatile until they are written
	prev      timestamps.Position // of what was published before tail[0], in an earlier run if need be
	at        timestamps.Position // of the newest published event; Seq 0 in an epoch that has none yet
	unwritten int                 // the last so many of tail are told from memory and to be written
	bytes     int64               // that the unwritten ones hold, about
	told      uint64              // how many events were published in this run
	changed   chan struct{}       // closed and replaced when something is published
	ended     bool
}

func newFeed(s store.Store, at timestamps.Position) *feed {
	return &feed{store: s, prev: at, at: at, changed: make(chan struct{})}
}

// append publishes events and returns the position readers are at. They are
// volatile if they aren't written yet.
func (f *feed) append(events []store.Event, volatile bool) timestamps.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(events) == 0 {
		return f.at
	}
	n := len(f.tail)
	f.told += uint64(len(events))
	f.tail = append(f.tail, events...)
	if volatile {
		for i := range f.tail[n:] {
			f.tail[n+i].Volatile = true
		}
		f.unwritten += len(events)
		f.bytes += eventsHold(events)
	}
	f.at = events[len(events)-1].Position
	// Trimmed in large steps. What is to be written stays.
	if extra := len(f.tail) - max(tailSize, f.unwritten); extra > tailSize {
		f.prev = f.tail[extra-1].Position
		f.tail = slices.Clone(f.tail[extra:])
	}
	close(f.changed)
	f.changed = make(chan struct{})
	return f.at
}

// wrote notes that the oldest n unwritten events are in the store.
func (f *feed) wrote(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = min(n, f.unwritten)
	from := len(f.tail) - f.unwritten
	for i := range f.tail[from : from+n] {
		f.tail[from+i].Volatile = false
	}
	f.unwritten -= n
	f.bytes -= eventsHold(f.tail[from : from+n])
}

// held returns how many events are told from memory and to be written, and
// about how many bytes they hold.
func (f *feed) held() (events int, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unwritten, f.bytes
}

// toWrite returns the events that are to be written, volatile as they are told.
// They are the feed's own: for its writer to read, since only that changes them,
// and see asStored.
func (f *feed) toWrite() []store.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clip(f.tail[len(f.tail)-f.unwritten:])
}

// asStored returns a copy of events that were told from memory, as they are
// stored. It is made for one part at a time, since all of them may be many.
func asStored(events []store.Event) []store.Event {
	events = slices.Clone(events)
	for i := range events {
		events[i].Volatile = false
	}
	return events
}

// eventsHold is about how many bytes events hold. Labels may be shared with
// the record, but only as long as that stays as it is.
func eventsHold(events []store.Event) (n int64) {
	const overhead, perLabel = 512, 32 // of the struct and its short strings; of an entry of a map
	for i := range events {
		ev := &events[i]
		n += overhead + int64(len(ev.Reason)+len(ev.Container.Image))
		for k, v := range ev.Pod.Labels {
			n += perLabel + int64(len(k)+len(v))
		}
	}
	return n
}

// begin starts an epoch. What was told from memory in the one before will not
// be written any more; readers find it here as long as the tail has it.
func (f *feed) begin(e timestamps.Epoch) timestamps.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.unwritten, f.bytes = timestamps.Position{Epoch: e}, 0, 0
	return f.at
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.ended = true
		close(f.changed)
	}
}

// count returns the position of the newest published event, and how many were
// published in this run up to it.
func (f *feed) count() (at timestamps.Position, told uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at, f.told
}

// written returns the position of the newest event that is written, of the
// first n that were published in this run. ok is false where memory doesn't know
// it any more.
func (f *feed) written(n uint64) (at timestamps.Position, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of(min(n, f.told-uint64(f.unwritten)))
}

// nth returns the position of the n-th event that was published in this run. ok
// is false where memory doesn't know it any more.
func (f *feed) nth(n uint64) (at timestamps.Position, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of(n)
}

// of is nth with the lock held.
func (f *feed) of(n uint64) (at timestamps.Position, ok bool) {
	if n >= f.told {
		return f.at, n == f.told
	}
	after := f.told - n // so many were published after it
	if after >= uint64(len(f.tail)) {
		return f.prev, after == uint64(len(f.tail))
	}
	return f.tail[uint64(len(f.tail))-after-1].Position, true
}

func (f *feed) position() timestamps.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// oldest returns the position to resume from so as to read all that is left:
// from the store on, if memory goes on where the store ends, else from memory.
func (f *feed) oldest() timestamps.Position {
	for j := f.store.Journal(); ; {
		at := f.oldestOf(j)
		now := f.store.Journal()
		if now == j {
			return at
		}
		j = now // a commit came in between, and may have dropped what was looked for
	}
}

// oldestOf is oldest, as long as the store's journal is j.
func (f *feed) oldestOf(j store.Journal) timestamps.Position {
	f.mu.Lock()
	prev := f.prev
	_, joined := f.next(timestamps.Position{Epoch: j.Epoch, Seq: j.Last})
	f.mu.Unlock()
	if j.Entries == 0 || !joined {
		return prev
	}
	from := max(j.First, 1) - 1
	switch events, err := f.store.Events(from, 1); {
	case errors.Is(err, store.ErrExpired):
		// A commit that failed for its caller was written all the same and has
		// dropped more than the store tells. What this run has told is in memory.
		return prev
	case err == nil && len(events) == 1 && events[0].Type == store.SequenceSkipped:
		from = events[0].From - 1 // in between are numbers that hold nothing
	}
	return timestamps.Position{Epoch: j.Epoch, Seq: from}
}

// next returns the index in tail of the first event after a position, which is
// len(tail) for a reader that is up to date. ok is false where memory can't
// tell what comes next. The caller holds the lock.
func (f *feed) next(after timestamps.Position) (i int, ok bool) {
	i = len(f.tail)
	if after.Epoch == f.at.Epoch && after.Seq >= f.at.Seq {
		return i, true
	}
	// Numbers mostly follow one another, so there is no need to search.
	if behind := f.at.Seq - after.Seq; after.Epoch == f.at.Epoch && behind < uint64(i) {
		if j := i - int(behind); f.tail[j-1].Position == after {
			return j, true
		}
	}
	for i > 0 && f.tail[i-1].Position.Epoch != after.Epoch {
		i--
	}
	if i == 0 { // nothing of its epoch is left
		return 0, after == f.prev
	}
	for i > 0 && f.tail[i-1].Position.Epoch == after.Epoch && f.tail[i-1].Position.Seq > after.Seq {
		i--
	}
	// What comes next is there, if what is before it is not after the position:
	// the position itself, or the end of another epoch.
	return i, i > 0 || f.prev.Epoch != after.Epoch || f.prev.Seq <= after.Seq
}
