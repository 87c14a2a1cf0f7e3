package sim_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/seam"
	"github.com/plegd/plegd/store"
)

// life is one run of the agent.
type life struct {
	w        *world
	n        int
	g        *pleg.Generator
	cancel   context.CancelFunc
	done     chan error
	gone     chan struct{} // closed when it is dead
	once     sync.Once
	dead     atomic.Bool
	killed   bool
	began    time.Time
	stopping time.Time // when a clean stop began
	ended    time.Time
}

// die ends what others can see of a life, at once.
func (l *life) die() {
	l.once.Do(func() {
		l.dead.Store(true)
		close(l.gone)
	})
}

// start runs an agent on the state that there is.
func (w *world) start() {
	l := &life{w: w, n: len(w.lives) + 1, began: time.Now(), done: make(chan error, 1), gone: make(chan struct{})}
	cfg := pleg.Config{
		Endpoint: "/run/sim.sock", StateDir: w.dir, Mode: w.p.mode, NodeName: "sim", BootID: "boot",
		RelistPeriod: w.p.base, RelistPeriodMax: w.p.most, RPCTimeout: w.p.timeout, Logger: w.log.logger(l), Clock: w.agentClock(),
		Retention: store.Retention{Entries: w.p.keep},
	}
	seam.Set(&cfg, seam.Hooks{
		Dialer: w.dial,
		Store:  func(s store.Store) store.Store { return w.disk.hold(s, l) },
		Stats:  &sight{w: w, l: l},
		Random: func(part string) func() float64 { return dice(w.p.seed, fmt.Sprint("random ", part, l.n)).Float64 },

		Tombstones: w.p.tombs, TombstoneAge: int64(w.p.tombAge),
	})
	g, err := pleg.New(cfg)
	if err != nil {
		w.fail("start: %v", err)
		return
	}
	l.g = g
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	w.life = l
	w.lives = append(w.lives, l)
	w.main.attach(l)
	go func() { l.done <- g.Run(ctx) }()
	for _, r := range w.readers {
		r.attach(l)
	}
	w.note("agent starts, life %d", l.n)
}

// kill ends the agent as SIGKILL does.
func (w *world) kill() {
	l := w.life
	if l == nil {
		return
	}
	l.die()
	l.killed, l.ended = true, time.Now()
	w.note("agent killed, life %d", l.n)
	w.bury(l)
}

// stop ends the agent as SIGTERM does.
func (w *world) stop() {
	l := w.life
	if l == nil {
		return
	}
	l.stopping = time.Now()
	w.note("agent stops, life %d", l.n)
	// Whoever stops it has no patience without an end: a disk that hangs then
	// costs a kill.
	patience := time.AfterFunc(stopPatience, func() {
		w.note("agent killed since it doesn't stop, life %d", l.n)
		l.killed = true
		l.die()
	})
	err := w.bury(l)
	patience.Stop()
	l.ended = time.Now()
	if took := l.ended.Sub(l.stopping); took > 3*time.Second && !w.disk.in(l.stopping) {
		w.fail("stop took %v", took)
	}
	if err != nil && !w.disk.in(l.stopping) && !l.dead.Load() { // a kill may have come first, at its last commit
		w.fail("stop: %v", err)
	}
}

// stopPatience is how long a stop may take.
const stopPatience = 10 * time.Second

// bury ends all that belongs to a life.
func (w *world) bury(l *life) error {
	l.cancel()
	err := <-l.done
	w.main.detach()
	for _, r := range w.readers {
		r.detach()
	}
	w.life = nil
	return err
}
