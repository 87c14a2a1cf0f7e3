package replay

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/backoff"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/recording"
	"github.com/plegd/plegd/internal/seam"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/timestamps"
)

// World is virtual time with a runtime in it that answers from a recording. Its methods
// are safe for concurrent use inside of it.
type World struct {
	rec   *Recording
	began time.Time
	wall  atomic.Int64 // by how much the wall clock has stepped since, ns
	over  func()       // tells that the recording has ended
	runtimeServer

	mu     sync.Mutex
	facts  facts
	talk   talk
	calls  []*call
	made   int           // calls so far
	wake   chan struct{} // capacity 1: there is a call
	stop   chan struct{} // closed at the end
	driven chan struct{} // closed after it

	counted  recording.Count
	answered bool // the last that happened is that an answer came
	ended    bool // the recording has
}

// newWorld begins the world.
func newWorld(rec *Recording, over func()) *World {
	w := &World{
		rec: rec, began: time.Now(), over: over, facts: newFacts(), talk: newTalk(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), driven: make(chan struct{}),
	}
	w.serve(w)
	go w.drive()
	return w
}

// close ends it.
func (w *World) close() {
	close(w.stop)
	<-w.driven
	w.mu.Lock()
	w.talk.hangUp()
	w.mu.Unlock()
	w.shut()
}

// Header says what was recorded.
func (w *World) Header() recording.Header { return w.rec.Header }

// End says why nothing more was recorded, and what is wrong with the file if it was torn
// there. It is for when the context that Main gave has ended.
func (w *World) End() (end recording.End, torn error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rec.end, w.rec.torn
}

// Lost returns how many entries are missing in what was replayed so far, since the disk
// was too slow for them.
func (w *World) Lost() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rec.lost
}

// Calls returns how many lists, statuses and errors were answered so far.
func (w *World) Calls() recording.Count {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counted
}

// now is the time since the recording began, ns.
func (w *World) now() int64 { return int64(time.Since(w.began)) }

// Clock returns the clock of the recorded machine.
func (w *World) Clock() timestamps.Clock {
	c := sysclock.New()
	c.Wall = func() time.Time { return time.Unix(0, w.rec.Header.StartedAt+w.now()+w.wall.Load()) }
	return c
}

// Random returns the source of chance of one part of a generator. What it gives depends on
// the recording and on the time, and not on who asks first of those that ask at one moment. It has the type of a
// seam.Hooks.Random, but may have several callers at a time.
func (w *World) Random(part string) func() float64 {
	return func() float64 { return w.dice(fmt.Sprint(part, " ", w.now())).Float64() }
}

func (w *World) dice(what string) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, what)
	return rand.New(rand.NewPCG(h.Sum64(), uint64(w.rec.Header.StartedAt))) //nolint:gosec // chance that is no secret
}

// redial is how soon a lost connection is tried again, by the time of the world: soon, and
// without chance, so that it is there again when it was recorded to be.
var redial = backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1, MaxDelay: 50 * time.Millisecond}

// Redial returns how soon a client that Configure knows nothing of is to try again a
// connection that it lost.
func (w *World) Redial() *backoff.Config { return &redial }

// Configure puts the world into the configuration of a generator: its clock, runtime and
// chance, and names that don't depend on the machine. more are further hooks; those that
// the world needs itself are replaced.
func (w *World) Configure(cfg *pleg.Config, more seam.Hooks) {
	cfg.Endpoint, cfg.NodeName, cfg.BootID = "/recording", "recorded", "recorded"
	cfg.Clock = w.Clock()
	more.Dialer, more.Random, more.Redial = w.Dial, w.Random, &redial
	more.Store = withEpoch(w.epoch(cfg), more.Store)
	seam.Set(cfg, more)
}

// drive has one thing happen after the other. Each is over when everything waits.
func (w *World) drive() {
	defer close(w.driven)
	for {
		synctest.Wait()
		next, did := w.step()
		if did {
			continue
		}
		timer := time.NewTimer(time.Duration(next - w.now()))
		select {
		case <-w.stop:
		case <-w.wake:
		case <-timer.C:
		}
		timer.Stop()
		select {
		case <-w.stop:
			return
		default:
		}
	}
}

// step does one thing that is due, and else says when the next one is.
func (w *World) step() (next int64, did bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, due := w.now(), w.rec.due()
	c, when := w.first()
	if w.talk.losing {
		w.lose(c)
		return 0, true
	}
	// Who waited for an answer hears it before anything else happens: the recorded
	// generator did, and went on at once.
	if c != nil && when <= now && (w.answered || due > now) {
		w.answer(c)
		return 0, true
	}
	switch e := w.rec.next; {
	case due <= now && e != nil:
		w.rec.advance()
		w.apply(e)
		w.answered = e.Kind == recording.KindAnswer
		return 0, true
	case due <= now && !w.ended:
		w.ended = true
		w.over()
		return 0, true
	case due <= now && when <= now:
		w.answer(c)
		return 0, true
	case due <= now:
		due = never
	}
	return min(due, when, now+int64(time.Hour)), false
}

// lose ends one thing on the connection that is being lost: what ends with it all at once
// does so in any order. c is the first call that waits, nil if none does.
func (w *World) lose(c *call) {
	if c != nil {
		w.reply(c, nil, errLost)
	} else if !w.talk.endStream(errLost) {
		w.talk.disconnected()
	}
}

// never is later than all.
const never = 1<<63 - 1

// apply has an entry happen.
func (w *World) apply(e *recording.Entry) {
	w.wall.Store(e.Wall)
	if e.Lost > 0 {
		w.rec.lost += e.Lost
		w.facts.forgetCalls() // some of which may have been answered
	}
	switch e.Kind {
	case recording.KindAsked:
		w.facts.asked(e)
	case recording.KindAnswer:
		w.talk.answered(e)
		w.facts.answered(e, w.talk.up())
	case recording.KindOpened:
		w.talk.opened(e)
	case recording.KindEvent:
		w.facts.event(e)
		w.talk.event(e)
	case recording.KindClosed:
		w.talk.closed(e)
	case recording.KindConnected:
		w.facts.connected()
		w.talk.connected()
	case recording.KindDisconnected:
		w.talk.losing = true
	}
}
