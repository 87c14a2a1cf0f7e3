package arbiter

import (
	"sync"
	"time"

	"github.com/plegd/plegd/store"
)

// watching observes a loop.
type watching struct {
	mu        sync.Mutex
	steps     int
	woken     []time.Time // steps of TimePassed
	commits   []commitSeen
	published int
	written   func()            // after each commit; may be nil
	heard     func(store.Event) // of each published event; may be nil
	actions   []Action
	stepped   func(Input, *Output) // may be nil
}

type commitSeen struct {
	at     time.Time
	events int
	err    error
}

func (w *watching) Stepped(in Input, out *Output) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps++
	if _, ok := in.(*TimePassed); ok {
		w.woken = append(w.woken, time.Now())
	}
	if w.stepped != nil {
		w.stepped(in, out)
	}
}

func (w *watching) Committed(_ time.Duration, events int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commits = append(w.commits, commitSeen{time.Now(), events, err})
	if w.written != nil {
		w.written()
	}
}

func (w *watching) Published(ev *store.Event, _ time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.published++
	if w.heard != nil {
		w.heard(*ev)
	}
}

func (w *watching) do(actions []Action) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.actions = append(w.actions, actions...)
}

// committed returns the commits with events that succeeded.
func (w *watching) committed() (list []commitSeen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.commits {
		if c.events > 0 && c.err == nil {
			list = append(list, c)
		}
	}
	return list
}
