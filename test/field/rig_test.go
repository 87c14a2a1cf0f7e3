package field_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// The durations of the cases, scaled down: see doc.go.
const (
	periodP  = 100 * time.Millisecond
	periodL  = 1600 * time.Millisecond // four doublings of P
	stopTime = 5 * time.Second         // G4; the product promises two, on a machine that is idle
)

// patience is for whatever must come: a failure, not a measure.
var patience = size(time.Minute, 5*time.Minute)

// field is one case: a simulated runtime on a unix socket, one agent after
// another on it, and all that they told and showed.
type field struct {
	t    *testing.T
	rt   *simruntime.Runtime
	path string // the socket
	cfg  pleg.Config
	log  records
	res  resources

	listed atomic.Int64 // full lists begun, counted by the runtime
	maxLog map[string]int

	life  *life
	lives int
	held  bool // there are no periodic lists

	mu      sync.Mutex
	events  []pleg.Event // of all lives
	at      *pleg.Position
	retold  map[string]bool           // entities of which the case damaged what was known
	resets  int                       // times that a reader had to begin again, since the state was lost
	codes   map[string]map[int32]bool // exit codes that injected events told, by id
	samples samples
}

// life is one run of the agent.
type life struct {
	g      *pleg.Generator
	reg    *prometheus.Registry
	cancel context.CancelFunc
	done   chan error

	stopRead context.CancelFunc
	read     sync.WaitGroup // the subscriber and the sampler
}

// option changes how a case is set up, before anything runs.
type option func(*setup)

type setup struct {
	sim   simruntime.Config
	agent pleg.Config
}

// newField starts a runtime and no agent. The rules are checked by finish.
func newField(t *testing.T, opts ...option) *field {
	t.Helper()
	s := setup{sim: simruntime.Config{Seed: 1}, agent: pleg.Config{
		RelistPeriod: periodP, RelistPeriodMax: periodL, RPCTimeout: 5 * time.Second, RelistThreshold: 20 * time.Second,
	}}
	for _, o := range opts {
		o(&s)
	}
	f := &field{t: t, cfg: s.agent, maxLog: map[string]int{}, codes: map[string]map[int32]bool{}, retold: map[string]bool{}}
	f.samples.init()
	// Goroutines inherit their maker's labels, so what a case leaves behind can
	// be told from what others run beside it.
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(caseLabel, t.Name())))
	dir := t.TempDir()
	if f.cfg.StateDir == "" {
		f.cfg.StateDir = filepath.Join(dir, "state")
	}
	f.rt, f.path = simtest.Start(t, s.sim)
	f.cfg.Endpoint = f.path
	for _, method := range []string{"StreamPodSandboxes", "ListPodSandbox"} {
		simtest.Rule(t, f.rt, simruntime.Rule{Method: method, Where: f.countList})
	}
	f.res.begin(f)
	t.Cleanup(func() {
		if f.life != nil { // the test has failed before its end
			f.life.cancel()
			f.life.stopRead()
			f.life.read.Wait()
			<-f.life.done
		}
		if t.Failed() && testing.Verbose() {
			for _, r := range f.log.all() {
				t.Log(r)
			}
			all := f.all()
			for _, ev := range all[max(0, len(all)-60):] {
				t.Log(describe(ev))
			}
		}
	})
	return f
}

// countList counts full lists and matches nothing.
func (f *field) countList(op simruntime.Op) bool {
	req, ok := op.Request.(interface {
		GetFilter() *runtimeapi.PodSandboxFilter
	})
	if ok && op.ID == "" && len(req.GetFilter().GetLabelSelector()) == 0 {
		f.listed.Add(1)
	}
	return false
}

// lists returns how many full lists have begun.
func (f *field) lists() int { return int(f.listed.Load()) }

// start runs an agent on the state directory, with a reader that goes on where
// the last one was, and a sampler of what the agent shows.
func (f *field) start() {
	f.t.Helper()
	cfg := f.cfg
	cfg.Logger = f.log.logger()
	l := &life{reg: prometheus.NewRegistry(), done: make(chan error, 1)}
	cfg.Registerer = l.reg
	g, err := pleg.New(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	l.g = g
	if f.at == nil {
		f.at = new(g.Position())
	}
	sub, err := g.Subscribe(f.at)
	if errors.Is(err, pleg.ErrExpired) {
		f.resets++
		f.at = new(g.Oldest())
		sub, err = g.Subscribe(f.at)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	readCtx, stopRead := context.WithCancel(context.Background())
	l.cancel, l.stopRead = cancel, stopRead
	f.life, f.lives = l, f.lives+1
	f.samples.begin(f.lives)
	l.read.Go(func() { f.subscribe(readCtx, sub) })
	l.read.Go(func() { f.sample(readCtx, g) })
	go func() { l.done <- g.Run(ctx) }()
}

// subscribe keeps every event that it is told.
func (f *field) subscribe(ctx context.Context, sub *pleg.Subscription) {
	for {
		ev, err := sub.Next(ctx)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, pleg.ErrStopped) {
				f.t.Errorf("subscriber: %v", err)
			}
			return
		}
		f.mu.Lock()
		f.events = append(f.events, *ev)
		f.at = new(ev.Position)
		f.mu.Unlock()
	}
}

// all returns every event of every life.
func (f *field) all() []pleg.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// g is the agent that runs.
func (f *field) g() *pleg.Generator { return f.life.g }

// stop ends the agent as SIGTERM does (G4), once its reader has read all.
func (f *field) stop() {
	f.t.Helper()
	f.stopWithin(stopTime)
}

func (f *field) stopWithin(most time.Duration) {
	f.t.Helper()
	f.caughtUp()
	f.held = false
	f.life.cancel()
	select {
	case err := <-f.life.done:
		if err != nil {
			f.t.Errorf("G4: run ended with %v", err)
		}
	case <-time.After(most):
		f.t.Errorf("G4: run goes on %v after its end was asked for", most)
		<-f.life.done
	}
	f.life.stopRead()
	f.life.read.Wait()
	pods, _ := f.life.g.Pods()
	f.samples.take(pods) // what was shown last
	f.life = nil
}

// caughtUp waits until the reader has what is published by now.
func (f *field) caughtUp() {
	f.t.Helper()
	end := f.g().Position()
	f.until("the reader to catch up", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.at.Epoch == end.Epoch && f.at.Seq >= end.Seq
	})
}

// until polls for a condition. Its text says what was waited for.
func (f *field) until(what string, met func() bool) {
	f.t.Helper()
	f.untilWithin(patience, what, met)
}

func (f *field) untilWithin(most time.Duration, what string, met func() bool) {
	f.t.Helper()
	for end := time.Now().Add(most); ; {
		began := time.Now()
		if met() {
			return
		}
		if time.Now().After(end) {
			f.t.Fatalf("waited in vain for %s", what)
		}
		pause(began)
	}
}

// pause waits after a look that began then: a look may take a fifth of a
// processor at most.
func pause(began time.Time) {
	time.Sleep(max(3*time.Millisecond, min(4*time.Since(began), 200*time.Millisecond)))
}

// during checks a condition again and again for some time.
func (f *field) during(d time.Duration, what string, holds func() bool) {
	f.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(3 * time.Millisecond) {
		if !holds() {
			f.t.Fatalf("no longer: %s", what)
		}
	}
}

// ready waits until the agent is.
func (f *field) ready() {
	f.t.Helper()
	f.until("readiness", func() bool { return f.g().Health().Ready })
}

// streamUp waits for the event stream, and that whoever lists was told.
func (f *field) streamUp() {
	f.t.Helper()
	f.until("the stream", func() bool { return f.g().Status().Stream.State == "up" })
}

// trusted waits until the stream is trusted: the period is the longest.
func (f *field) trusted() {
	f.t.Helper()
	f.resume()
	f.until("the period to stretch", func() bool { return f.periodState() == "stretched" })
}

func (f *field) periodState() string { return f.g().Status().Relist.State }

// trustedJust waits until the stream is trusted and then holds the periodic
// lists, so that what comes doesn't come from one of them.
func (f *field) trustedJust() {
	f.t.Helper()
	f.trusted()
	f.hold()
}

// hold stops the periodic lists.
func (f *field) hold() {
	f.t.Helper()
	f.must(f.g().UpdatePeriods(time.Hour, time.Hour))
	f.held = true
	f.until("no call in flight", func() bool { return f.rt.CallStats("").InFlight == 0 })
}

// resume lets periodic lists go on.
func (f *field) resume() {
	f.t.Helper()
	if f.held {
		f.held = false
		f.must(f.g().UpdatePeriods(f.cfg.RelistPeriod, f.cfg.RelistPeriodMax))
	}
}

// relists lets n whole relists go by.
func (f *field) relists(n int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range n {
		if err := f.g().Relist(ctx); err != nil {
			f.t.Fatal(err)
		}
	}
}

// quiet is rule G2: from now the runtime changes no more, so what is cached
// equals it after few lists that the agent makes by itself: one that is under
// way, one that is new, and where O4 asks for it another.
func (f *field) quiet() {
	f.t.Helper()
	f.resume()
	before := f.lists()
	most := size(4, 10) // so much at once that a busy machine needs more than P to take it in
	if n := f.agree() - before; n > most {
		f.t.Errorf("G2: after %d lists the cache was not as the runtime", n)
	}
}

// eventually is quiet for cases in which something asked for lists meanwhile,
// or inspections are under back-off.
func (f *field) eventually() {
	f.t.Helper()
	f.resume()
	f.agree()
}

// agree waits until cache and runtime do, and returns how many lists had begun
// when they were last seen not to: comparing takes time, in which lists go on.
func (f *field) agree() (lists int) {
	f.t.Helper()
	for end := time.Now().Add(patience); ; {
		began, begun := time.Now(), f.lists()
		diff := f.disagreement()
		if diff == "" {
			return lists
		}
		lists = begun
		if time.Now().After(end) {
			f.t.Fatalf("G2: the cache differs from the runtime (-runtime +cache):\n%s", diff)
		}
		pause(began)
	}
}

// queueEmpty waits until nothing is left to ask.
func (f *field) queueEmpty() {
	f.t.Helper()
	f.until("an empty reinspection queue", func() bool { return len(f.g().Status().Asks) == 0 })
}

// metric returns the sum of the series of a metric whose labels hold these
// values, without the namespace; -1 if there is none.
func (f *field) metric(name string, values ...string) float64 {
	f.t.Helper()
	families, err := f.life.reg.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	sum, found := 0.0, false
	for _, fam := range families {
		if fam.GetName() != "plegd_"+name {
			continue
		}
		for _, m := range fam.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetValue())
			}
			if slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(have, v) }) {
				continue
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			found = true
		}
	}
	if !found {
		return -1
	}
	return sum
}

// rule puts a fault into effect until the end of the test.
func (f *field) rule(r simruntime.Rule) *simruntime.RuleHandle {
	f.t.Helper()
	return simtest.Rule(f.t, f.rt, r)
}

// both puts a fault into effect for a list, whichever of the two calls the
// agent uses for it: "PodSandbox" or "Containers".
func (f *field) both(list string, r simruntime.Rule) (remove func()) {
	f.t.Helper()
	var handles []*simruntime.RuleHandle
	streamed := map[string]string{"PodSandbox": "StreamPodSandboxes", "Containers": "StreamContainers"}[list]
	for _, method := range []string{"List" + list, streamed} {
		r.Method = method
		handles = append(handles, f.rule(r))
	}
	return func() {
		for _, h := range handles {
			h.Remove()
		}
	}
}

func (f *field) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// logsOf allows a message to be logged so often in this case.
func (f *field) logsOf(message string, most int) { f.maxLog[message] = most }

// health returns the reasons of all that is wrong.
func health(h pleg.Health) string {
	var all []string
	for _, c := range h.Checks {
		if !c.OK {
			all = append(all, c.Name+": "+c.Reason)
		}
	}
	return strings.Join(all, "; ")
}

// describe is an event in a line.
func describe(ev pleg.Event) string {
	return fmt.Sprintf("%v %s %s %s life %d code %v/%d source %v inferred %v change %s%v", ev.Position.Seq, ev.Type,
		short(ev.EntityID()), ev.Pod.UID, ev.Incarnation, ev.ExitKnown, ev.ExitCode, ev.Source, ev.Inferred, ev.Change, ev.Changed)
}

// clone is proto.CloneOf, for edits of what the runtime shares.
func clone[M proto.Message](m M) M { return proto.CloneOf(m) }
