package sim_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// kind is a kind of fault. begin makes it happen and says what exactly; what it
// returns ends it, nil where there is nothing to end.
type kind struct {
	name  string
	begin func(w *world, rng *rand.Rand) (what string, end func())
}

// begin lets a fault begin, and end when its time is over or the chaos is.
func (f fault) begin(w *world) {
	w.beginning = f.kind.name
	what, end := f.kind.begin(w, f.rng)
	if what == ofNothing {
		w.note("%s %s", f.kind.name, what)
		return
	}
	w.count("fault: "+f.kind.name, 1)
	w.note("%s %s, %v", f.kind.name, what, f.last.Round(time.Millisecond))
	if end == nil {
		return
	}
	var once sync.Once
	stop := func() {
		once.Do(func() {
			end()
			w.note("end of %s %s", f.kind.name, what)
		})
	}
	w.endings = append(w.endings, stop)
	w.after(f.last, stop)
}

// ofNothing is what a fault does that finds nothing to be done to.
const ofNothing = "of nothing"

// rules puts rules into effect until the end of a fault, and then counts how
// often they acted.
func (w *world) rules(rules ...simruntime.Rule) (end func()) {
	name := w.beginning
	var handles []*simruntime.RuleHandle
	for _, r := range rules {
		handles = append(handles, w.must(w.rt.AddRule(r)))
	}
	return func() {
		for _, h := range handles {
			h.Remove()
			w.count("acted: "+name, h.Acted())
		}
	}
}

// event is a fault of events.
func event(change func(rng *rand.Rand, r *simruntime.Rule) string) func(*world, *rand.Rand) (string, func()) {
	return func(w *world, rng *rand.Rand) (string, func()) {
		r := simruntime.Rule{Method: simruntime.MethodEvent, Probability: pick(rng, []int{1, 1, 1}, []float64{0.1, 0.5, 1})}
		what := change(rng, &r)
		return fmt.Sprintf("%s, probability %v", what, r.Probability), w.rules(r)
	}
}

// methods are the calls that the agent makes; "" is all of them.
var methods = []string{"", "List", "Status", "ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus", "Version"}

// calls is a fault of calls.
func calls(change func(rng *rand.Rand, r *simruntime.Rule) string) func(*world, *rand.Rand) (string, func()) {
	return func(w *world, rng *rand.Rand) (string, func()) {
		method := methods[rng.IntN(len(methods))]
		p := pick(rng, []int{1, 1, 1}, []float64{0.2, 0.5, 1})
		r := simruntime.Rule{Probability: p, Where: func(op simruntime.Op) bool {
			return op.Method != simruntime.MethodGetContainerEvents && isMethod(op.Method, method)
		}}
		what := change(rng, &r)
		return fmt.Sprintf("%s of %q, probability %v", what, method, p), w.rules(r)
	}
}

// isMethod says whether a call is meant by a part of its name; lists may be streamed.
func isMethod(method, part string) bool {
	method = strings.NewReplacer("StreamPodSandboxes", "ListPodSandbox", "StreamContainers", "ListContainers").Replace(method)
	return strings.Contains(method, part)
}

var failures = []codes.Code{codes.Unavailable, codes.Unknown, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Internal}

// stream is a fault of the call that opens the event stream, for which the one
// that is open ends.
func stream(change func(rng *rand.Rand, r *simruntime.Rule) string) func(*world, *rand.Rand) (string, func()) {
	return func(w *world, rng *rand.Rand) (string, func()) {
		r := simruntime.Rule{Method: simruntime.MethodGetContainerEvents}
		what := change(rng, &r)
		end := w.rules(r)
		w.rt.EndStreams(codes.Unavailable)
		return what, end
	}
}

// unlessForgotten is a fault of times where tombstones are kept. Where they are
// forgotten, what is gone may come back with it, and what is new and soon gone be
// missed: without its time an event about an id that is not known only asks (T3, O6).
func unlessForgotten(begin func(*world, *rand.Rand) (string, func())) func(*world, *rand.Rand) (string, func()) {
	return func(w *world, rng *rand.Rand) (string, func()) {
		if w.p.tombs > 0 {
			return ofNothing, nil
		}
		return begin(w, rng)
	}
}

// kinds are all faults.
var kinds = []kind{
	{"events lost", event(func(_ *rand.Rand, r *simruntime.Rule) string { r.Drop = true; return "" })},
	{"events late", event(func(rng *rand.Rand, r *simruntime.Rule) string {
		r.Delay = between(rng, time.Millisecond, 20*time.Second)
		return fmt.Sprint(r.Delay)
	})},
	{"events repeated", event(func(rng *rand.Rand, r *simruntime.Rule) string {
		r.Duplicate, r.Delay = 1+rng.IntN(3), between(rng, time.Millisecond, 20*time.Second)
		return fmt.Sprint(r.Duplicate, " times after ", r.Delay)
	})},
	{"events reordered", event(func(rng *rand.Rand, r *simruntime.Rule) string {
		r.Every, r.Hold = 1+rng.IntN(4), 1+rng.IntN(4)
		return fmt.Sprint("each ", r.Every, " by ", r.Hold)
	})},
	{"stream stalled", event(func(_ *rand.Rand, r *simruntime.Rule) string { r.Hang = true; return "" })},
	{"payload emptied", event(func(rng *rand.Rand, r *simruntime.Rule) string {
		if rng.IntN(2) == 0 {
			r.Edit = simruntime.NoSandboxStatus
			return "of the sandbox"
		}
		r.Edit = simruntime.NoContainerStatuses
		return "of containers"
	})},
	{"created_at in seconds", unlessForgotten(event(func(_ *rand.Rand, r *simruntime.Rule) string { r.Edit = simruntime.Seconds; return "" }))},
	{"false event", falseEvent},
	{"stream ended", func(w *world, rng *rand.Rand) (string, func()) {
		code := pick(rng, []int{1, 1, 1}, []codes.Code{codes.OK, codes.Unavailable, codes.Internal})
		w.rt.EndStreams(code)
		return code.String(), nil
	}},
	{"stream refused", stream(func(rng *rand.Rand, r *simruntime.Rule) string {
		r.Code = failures[rng.IntN(len(failures))]
		return r.Code.String()
	})},
	{"stream hangs", stream(func(_ *rand.Rand, r *simruntime.Rule) string { r.Hang = true; return "" })},
	{"calls slow", calls(func(rng *rand.Rand, r *simruntime.Rule) string {
		r.Delay, r.After = between(rng, 10*time.Millisecond, 15*time.Second), rng.IntN(2) == 0
		return fmt.Sprint(r.Delay, " after ", r.After)
	})},
	{"calls fail", calls(func(rng *rand.Rand, r *simruntime.Rule) string {
		r.Code, r.After = failures[rng.IntN(len(failures))], rng.IntN(2) == 0
		return r.Code.String()
	})},
	{"calls hang", calls(func(rng *rand.Rand, r *simruntime.Rule) string {
		r.Hang, r.After, r.IgnoreCancel = true, rng.IntN(2) == 0, rng.IntN(2) == 0
		return fmt.Sprint("after ", r.After)
	})},
	{"answers garbled", calls(func(_ *rand.Rand, r *simruntime.Rule) string { r.Raw = []byte{0xff}; return "" })},
	{"gone before its status", goneBetween},
	{"half a list", halfList},
	{"wrong state", wrongState},
	{"wrong state", wrongState}, // which is the one that is hardest to get right
	{"runtime restarted", func(w *world, rng *rand.Rand) (string, func()) {
		kill := rng.IntN(2) == 0
		away := time.Duration(0)
		if rng.IntN(2) == 0 {
			away = between(rng, time.Millisecond, 10*time.Second)
		}
		return fmt.Sprint("killed ", kill, ", away ", away), w.restart(rng, kill, away, nil)
	}},
	{"runtime upgraded", func(w *world, rng *rand.Rand) (string, func()) {
		profile := w.rt.Profile()
		profile.Version = map[string]string{
			"v2.4.2": "v2.4.3", "v2.4.3": "v2.4.2", "v1.7.35": "v1.7.36", "v1.7.36": "v1.7.35",
			"1.6.20~ds1": "1.6.21", "1.6.21": "1.6.20~ds1", "1.37.0": "1.37.1", "1.37.1": "1.37.0",
		}[profile.Version]
		return profile.Version, w.restart(rng, false, between(rng, time.Millisecond, time.Second), &profile)
	}},
	{"runtime frozen", func(w *world, _ *rand.Rand) (string, func()) {
		w.rt.Freeze()
		return "", w.rt.Thaw
	}},
	{"agent killed", func(w *world, rng *rand.Rand) (string, func()) {
		if w.life == nil {
			return ofNothing, nil
		}
		w.kill()
		w.startLater(rng)
		return "", nil
	}},
	{"agent killed at a commit", func(w *world, rng *rand.Rand) (string, func()) {
		n, after := 1+rng.IntN(20), rng.IntN(2) == 0
		w.disk.kill(n, after)
		return fmt.Sprintf("%d from now, after it %v", n, after), func() { w.disk.kill(0, false) }
	}},
	{"agent stopped", func(w *world, rng *rand.Rand) (string, func()) {
		if w.life == nil {
			return ofNothing, nil
		}
		w.stop()
		w.startLater(rng)
		return "", nil
	}},
	{"disk full", func(w *world, _ *rand.Rand) (string, func()) {
		w.disk.fails(store.ErrFull, false, false)
		return "", func() { w.disk.fails(nil, false, false) }
	}},
	{"disk read-only", func(w *world, _ *rand.Rand) (string, func()) {
		w.disk.fails(store.ErrUnwritable, false, false)
		return "", func() { w.disk.fails(nil, false, false) }
	}},
	{"disk fails", func(w *world, rng *rand.Rand) (string, func()) {
		mends, renews := rng.IntN(2) == 0, rng.IntN(4) == 0
		w.disk.fails(store.ErrIO, mends, renews)
		return fmt.Sprintf("a copy helps %v, a fresh file %v", mends, renews), func() { w.disk.fails(nil, false, false) }
	}},
	{"commits of unknown outcome", func(w *world, rng *rand.Rand) (string, func()) {
		n := 1 + rng.IntN(3)
		w.disk.doubt(n)
		return fmt.Sprint(n), func() { w.disk.doubt(0) }
	}},
	{"disk hangs", func(w *world, _ *rand.Rand) (string, func()) { return "", w.disk.hang() }},
	{"clock steps", unlessForgotten(func(w *world, rng *rand.Rand) (string, func()) {
		d := between(rng, 100*time.Millisecond, 24*time.Hour)
		if rng.IntN(2) == 0 {
			d = -d
		}
		if d.Abs() <= timestamps.StepThreshold {
			w.slack.Store(timestamps.StepThreshold)
		}
		w.clock.Step(d)
		return d.String(), nil
	})},
}

// kill has the agent killed at a commit.
func (d *disk) kill(n int, after bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killIn, d.after = n, after
}

// doubt has commits fail after they wrote.
func (d *disk) doubt(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsure = n
	d.note()
}

// quiet ends all of it.
func (d *disk) quiet() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.killIn, d.unsure, d.broken = 0, 0, nil
	d.note()
}

// restart restarts the runtime, perhaps as another version. Afterwards it may
// take its time until it lists what it has.
func (w *world) restart(rng *rand.Rand, kill bool, away time.Duration, as *simruntime.Profile) (end func()) {
	if kill {
		w.rt.Kill()
	} else {
		w.rt.Down()
	}
	if as != nil {
		_ = w.rt.SetProfile(*as) // not while another restart is under way
	}
	empty := time.Duration(0)
	if rng.IntN(2) == 0 {
		empty = time.Duration(rng.Int64N(int64(w.p.base * 8 / 10)))
	}
	up := sync.OnceFunc(func() {
		loaded := func() {}
		if empty > 0 {
			w.note("the runtime lists nothing for %v", empty)
			w.beginning = "empty lists after a restart"
			loaded = w.rules(simruntime.Rule{Where: func(op simruntime.Op) bool { return isMethod(op.Method, "List") }, Edit: nothing})
		}
		w.rt.Up()
		if empty > 0 {
			once := sync.OnceFunc(loaded)
			w.endings = append(w.endings, once)
			w.after(empty, once)
		}
	})
	if away == 0 {
		up()
		return nil
	}
	w.after(away, up)
	return up
}

// nothing empties a list.
func nothing(m proto.Message) {
	leaveOut(m, func(string) bool { return true })
}

// halfList leaves half of the items out of one list.
func halfList(w *world, rng *rand.Rand) (string, func()) {
	var keep bool
	return "", w.rules(simruntime.Rule{Times: 1, Where: func(op simruntime.Op) bool { return isMethod(op.Method, "List") }, Edit: func(m proto.Message) {
		leaveOut(m, func(string) bool {
			keep = !keep
			return !keep
		})
	}})
}

// leaveOut leaves out of a list, or a part of a streamed one, what drop chooses.
func leaveOut(m proto.Message, drop func(id string) bool) {
	switch m := m.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		m.Items = without(m.Items, drop)
	case *runtimeapi.StreamPodSandboxesResponse:
		m.PodSandboxes = without(m.PodSandboxes, drop)
	case *runtimeapi.ListContainersResponse:
		m.Containers = without(m.Containers, drop)
	case *runtimeapi.StreamContainersResponse:
		m.Containers = without(m.Containers, drop)
	}
}

func without[T interface{ GetId() string }](items []T, drop func(string) bool) (rest []T) {
	for _, it := range items {
		if !drop(it.GetId()) {
			rest = append(rest, it)
		}
	}
	return rest
}

// goneBetween removes a container just before its status is read.
func goneBetween(w *world, rng *rand.Rand) (string, func()) {
	return "", w.rules(simruntime.Rule{
		Method: "ContainerStatus", Times: 1 + rng.IntN(2),
		Do: func(op simruntime.Op) { _ = w.rt.RemoveContainer(op.ID) },
	})
}
