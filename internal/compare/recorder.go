package compare

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/stats"

	"github.com/plegd/plegd/internal/seam"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// fsyncsPerCommit: bbolt 1.5 syncs each transaction twice, its pages before the
// page that points to them (Tx.write, Tx.writeMeta). It syncs once more each
// time that the file grows, by 16 MiB at least, which is not counted.
const fsyncsPerCommit = 2

// Recorder makes lines of what happens to one mode. Its methods may be called
// by any goroutine; lines of one goroutine stay in order.
type Recorder struct {
	emit    func(Line)
	clock   timestamps.Clock
	commits atomic.Uint64

	mu    sync.Mutex
	calls map[string]Calls
	said  map[string]said
	held  map[string]map[string]bool // kind, then ids that the last full list had
	gone  map[string]int64           // when an event said that it is removed; until a list shows it later, or not
}

// said is what was last said of an entity, by way.
type said map[Via]saying

// NewRecorder returns a recorder whose lines go to emit, which must not block:
// those of what the runtime says are made where it is received.
func NewRecorder(emit func(Line), clock timestamps.Clock) *Recorder {
	return &Recorder{
		emit: emit, clock: clock, calls: map[string]Calls{}, said: map[string]said{}, gone: map[string]int64{},
		held: map[string]map[string]bool{kindSandbox: {}, kindContainer: {}},
	}
}

// Hooks puts the recorder into the hooks of a generator: it sees each call, all
// that is received, and each commit.
func (r *Recorder) Hooks(h *seam.Hooks) {
	h.Stats = r.Stats()
	h.Store = r.store
}

// Stats returns what a connection of the mode has to tell.
func (r *Recorder) Stats() stats.Handler { return &tap{r: r} }

// Ready says that the mode is.
func (r *Recorder) Ready(runtime, version, stream string) {
	r.emit(Line{Ready: &Ready{At: r.now(), Runtime: runtime, Version: version, Stream: stream}})
}

// Event takes an event that the reader of the mode has just got.
func (r *Recorder) Event(ev *store.Event) {
	e := EventOf(ev, r.now())
	r.emit(Line{Event: &e})
}

// Sample says what the mode has cost so far. What the recorder doesn't know
// itself, fill adds; it may be nil.
func (r *Recorder) Sample(fill func(*Sample)) {
	s := Sample{At: r.now(), Commits: r.commits.Load(), Calls: map[string]Calls{}}
	s.Fsyncs = s.Commits * fsyncsPerCommit
	r.mu.Lock()
	for method, c := range r.calls {
		s.Calls[method] = c
	}
	r.mu.Unlock()
	if fill != nil {
		fill(&s)
	}
	r.emit(Line{Sample: &s})
}

// Note says something in words.
func (r *Recorder) Note(text string) { r.emit(Line{Note: &Note{At: r.now(), Text: text}}) }

// End is the last line. err is nil if the mode was asked to end.
func (r *Recorder) End(err error) {
	e := End{At: r.now()}
	if err != nil {
		e.Err = err.Error()
	}
	r.emit(Line{End: &e})
}

func (r *Recorder) now() int64 { return r.clock.Wall().UnixNano() }

// store counts the transactions of a store.
func (r *Recorder) store(s store.Store) store.Store {
	counted := countedStore{s, &r.commits}
	if rescuer, ok := s.(store.Rescuer); ok {
		return countedRescuer{counted, rescuer}
	}
	return counted
}

type countedStore struct {
	store.Store

	commits *atomic.Uint64
}

// Commit implements [store.Store].
func (s countedStore) Commit(b *store.Batch) error {
	s.commits.Add(1)
	return s.Store.Commit(b)
}

// countedRescuer is a store that can be rescued too.
type countedRescuer struct {
	countedStore
	store.Rescuer
}
