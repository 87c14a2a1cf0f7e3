package sim_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/plegd/plegd/internal/oracletest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// world is one seed at work, inside a bubble.
type world struct {
	t     *testing.T
	p     plan
	began time.Time
	clock simruntime.StepClock // the machine's wall clock: the agent's and the runtime's
	slack atomic.Int64         // ns by which it may have stepped without being noticed
	rt    *simruntime.Runtime
	lis   *bufconn.Listener
	dir   string
	disk  *disk
	load  *simruntime.Workload
	pods  recreated
	log   logs

	life   *life // nil while there is no agent
	lives  []*life
	killed chan *life
	hurry  chan struct{} // closed at the end: nobody takes his time any more

	past     past
	seen     sightings
	ledger   ledger
	lists    lists
	calls    asking
	details  details
	samples  sampler
	contents contents
	main     *reader
	readers  []*reader

	todo    []action
	made    int
	endings []func() // of what is open at the end of the chaos

	beginning string // the kind of fault that begins

	mu     sync.Mutex
	counts map[string]int
	script []string // what was done, and when
	bad    []string
}

// action is something to be done at a time.
type action struct {
	at time.Duration
	n  int
	do func()
}

// run carries a plan out and returns what came of it.
func run(t *testing.T, p plan, dir string) *world {
	w := &world{t: t, p: p, dir: dir, killed: make(chan *life, 1), hurry: make(chan struct{}), counts: map[string]int{}}
	w.began = time.Now()
	w.disk = newDisk(w.killed)
	w.rt = simtest.New(t, simruntime.Config{Seed: p.seed, Profile: p.profile, Wall: w.clock.Now, DualStack: p.dualStack})
	w.past.rt = w.rt
	w.lis = bufconn.Listen(1 << 20)
	simtest.Serve(t, w.rt, w.lis)
	// A network and a runtime that take their time, a little more or less for
	// each call: then things rarely happen at the same instant.
	lag := lag{seed: p.seed, calls: map[string]int{}}
	w.must(w.rt.AddRule(simruntime.Rule{Do: lag.wait}))
	var err error
	w.load, err = simruntime.NewWorkload(w.rt, simruntime.WorkloadConfig{Seed: p.seed, Pods: p.pods, ExitAtOnce: p.atOnce})
	w.check(err)
	w.pods = recreated{w: w, rng: dice(p.seed, "recreated")}
	w.main = &reader{w: w, pace: pace{name: "main"}}
	for _, pc := range p.readers {
		w.readers = append(w.readers, &reader{w: w, pace: pc})
	}

	w.at(p.first, w.start)
	w.after(time.Millisecond, w.work(dice(p.seed, "pauses")))
	w.after(10*time.Millisecond, w.recreate(dice(p.seed, "recreations")))
	for _, f := range p.faults {
		w.at(f.at, func() { f.begin(w) })
	}
	w.until(p.chaos)
	w.calm()
	w.settle()
	return w
}

// work does one step of the workload after another.
func (w *world) work(rng *rand.Rand) func() {
	var step func()
	step = func() {
		n, err := w.load.Step()
		if err != nil && !errors.Is(err, simruntime.ErrDown) {
			w.fail("workload: %v", err)
		}
		w.after(time.Duration((0.2+1.6*rng.Float64())*float64(max(n, 1))*float64(w.p.pause)), step)
	}
	return step
}

// at has something done at a time since the start, after d from now.
func (w *world) at(d time.Duration, do func()) {
	w.made++
	w.todo = append(w.todo, action{d, w.made, do})
}

func (w *world) after(d time.Duration, do func()) { w.at(time.Since(w.began)+d, do) }

// until does what is to be done up to a time. Between two actions the bubble
// comes to rest.
func (w *world) until(end time.Duration) {
	for len(w.bad) == 0 {
		synctest.Wait()
		w.look()
		w.sample()
		next := action{at: end}
		if len(w.todo) > 0 {
			i := 0
			for j, a := range w.todo {
				if a.at < w.todo[i].at || a.at == w.todo[i].at && a.n < w.todo[i].n {
					i = j
				}
			}
			if w.todo[i].at < end {
				next = w.todo[i]
				w.todo = slices.Delete(w.todo, i, i+1)
			}
		}
		if !w.sleep(next.at - time.Since(w.began)) { // killed meanwhile
			if next.do != nil {
				w.todo = append(w.todo, next)
			}
			continue
		}
		if next.do == nil {
			return
		}
		next.do()
	}
}

// sleep waits, and is cut short by the agent's being killed at a commit.
func (w *world) sleep(d time.Duration) bool {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case l := <-w.killed:
		w.count("agent killed at a commit", 1)
		if l == w.life {
			w.kill()
			w.startLater(dice(w.p.seed, fmt.Sprint("away ", l.n)))
		}
		return false
	}
}

// startLater starts the next agent, soon or not so soon.
func (w *world) startLater(rng *rand.Rand) {
	w.after(between(rng, 10*time.Millisecond, 20*time.Second), func() {
		if w.life == nil {
			w.start()
		}
	})
}

// look notices an agent that ended by itself, which it may do only where a
// start finds a state that can't be written at all; then it is started again,
// as systemd does.
func (w *world) look() {
	l := w.life
	if l == nil || l.dead.Load() {
		return
	}
	select {
	case err := <-l.done:
		l.done <- err
		if !errors.Is(err, store.ErrUnwritable) || !w.disk.in(l.began) {
			w.fail("life %d ended by itself: %v", l.n, err)
			return
		}
		w.count("starts refused by a read-only disk", 1)
		w.note("agent ends, life %d: %v", l.n, err)
		l.killed, l.ended = true, time.Now()
		_ = w.bury(l)
		w.startLater(dice(w.p.seed, fmt.Sprint("away ", l.n)))
	default:
	}
}

// calm ends all faults.
func (w *world) calm() {
	w.todo = nil
	for len(w.endings) > 0 { // an end may begin something else
		end := w.endings[0]
		w.endings = w.endings[1:]
		end()
	}
	w.disk.quiet()
	if w.life == nil && len(w.bad) == 0 {
		w.start()
	}
	w.note("calm")
}

// dial connects the agent to the runtime.
func (w *world) dial(ctx context.Context, _ string) (net.Conn, error) { return w.lis.DialContext(ctx) }

// agentClock is the agent's clock: the machine's wall clock, and the bubble's
// time for all else.
func (w *world) agentClock() timestamps.Clock {
	c := sysclock.New()
	c.Wall = w.clock.Now
	return c
}

// lag makes each call wait a little.
type lag struct {
	seed  uint64
	mu    sync.Mutex
	calls map[string]int
}

func (l *lag) wait(op simruntime.Op) {
	key := op.Method + op.ID
	l.mu.Lock()
	l.calls[key]++
	n := l.calls[key]
	l.mu.Unlock()
	h := fnv.New64a()
	fmt.Fprint(h, l.seed, key, n)
	time.Sleep(100*time.Microsecond + time.Duration(h.Sum64()%uint64(4*time.Millisecond)))
}

// note writes down what was done.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.script = append(w.script, fmt.Sprintf("%10.6f ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

// count counts something for the summary.
func (w *world) count(what string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what] += n
}

// fail notes a violation.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bad = append(w.bad, fmt.Sprintf("%10.6f ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

func (w *world) check(err error) {
	if err != nil {
		w.fail("%v", err)
	}
}

func (w *world) must(h *simruntime.RuleHandle, err error) *simruntime.RuleHandle {
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// logs is what all lives logged.
type logs struct {
	mu    sync.Mutex
	lines []string
}

// logger logs for one life, until it is dead.
func (g *logs) logger(l *life) *slog.Logger {
	return slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
		if !l.dead.Load() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.lines = append(g.lines, strings.TrimSuffix(string(b), "\n"))
		}
		return len(b), nil
	}), nil))
}

type writer func([]byte) (int, error)

func (f writer) Write(b []byte) (int, error) { return f(b) }

// recreated is a pod whose sandbox dies again and again and is made anew with
// the next attempt, as the kubelet does.
type recreated struct {
	w        *world
	rng      *rand.Rand
	pods     int
	attempt  uint32
	now, old string
}

func (w *world) recreate(rng *rand.Rand) func() {
	var step func()
	step = func() {
		err := w.pods.step()
		if err != nil && !errors.Is(err, simruntime.ErrDown) && !errors.Is(err, simruntime.ErrStartFailed) {
			w.note("sandbox of the recreated pod: %v", err)
			w.pods.now, w.pods.old = "", ""
			w.pods.pods++
		}
		w.after(between(rng, 50*time.Millisecond, 10*time.Second), step)
	}
	return step
}

func (p *recreated) step() error {
	rt := p.w.rt
	if rt.Frozen() {
		return nil
	}
	switch {
	case p.old != "" && p.now != "": // the kubelet removes the dead one later
		err := rt.RemovePodSandbox(p.old)
		if err == nil {
			p.old = ""
		}
		return err
	case p.now == "":
		name := fmt.Sprintf("again-%d", p.pods)
		id, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: name, UID: "uid-" + name, Attempt: p.attempt})
		if err != nil {
			return err
		}
		p.now = id
		p.attempt++
		c, err := rt.CreateContainer(id, simruntime.ContainerSpec{Name: "app", Attempt: p.attempt})
		if err != nil {
			return err
		}
		return rt.StartContainer(c)
	case p.rng.IntN(4) == 0:
		err := rt.RemovePodSandbox(p.now) // the whole pod goes
		if err == nil {
			p.now, p.attempt = "", 0
			p.pods++
		}
		return err
	default:
		if err := rt.ExitSandbox(p.now); err != nil {
			return err
		}
		if p.rng.IntN(2) == 0 {
			if err := rt.StopPodSandbox(p.now); err != nil {
				return err
			}
		}
		p.old, p.now = p.now, ""
		return nil
	}
}

func short(id string) string { return oracletest.Short(id) }
