package compare_test

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

// patience bounds every wait for what should happen soon.
const patience = 30 * time.Second

// child is a mode that runs in this process, as Run does in one of its own.
type child struct {
	t     *testing.T
	in    *io.PipeWriter
	lines chan compare.Line
	done  chan error
	trace compare.Trace
}

func startChild(t *testing.T, endpoint, mode string) *child {
	t.Helper()
	return startPatient(t, endpoint, mode, 5*time.Second)
}

// startPatient starts one that waits so long for an answer.
func startPatient(t *testing.T, endpoint, mode string, rpcTimeout time.Duration) *child {
	t.Helper()
	m, err := compare.ParseMode(mode)
	if err != nil {
		t.Fatal(err)
	}
	in, words := io.Pipe()
	out, w := io.Pipe()
	c := &child{t: t, in: words, lines: make(chan compare.Line, 10_000), done: make(chan error, 1), trace: compare.Trace{Mode: m}}
	go func() {
		err := compare.Run(t.Context(), in, w)
		_ = w.Close()
		c.done <- err
	}()
	go func() {
		defer close(c.lines)
		if err := compare.ReadLines(out, func(l compare.Line) { c.lines <- l }); err != nil {
			t.Error(err)
		}
	}()
	order, err := json.Marshal(compare.Child{Mode: m, Endpoint: endpoint, StateDir: t.TempDir(), RPCTimeout: rpcTimeout})
	if err != nil {
		t.Fatal(err)
	}
	c.say(string(order))
	t.Cleanup(func() { _ = words.Close() })
	return c
}

func (c *child) say(word string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, word+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// await reads lines until one is as wanted.
func (c *child) await(what string, is func(compare.Line) bool) compare.Line {
	c.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case l, ok := <-c.lines:
			if !ok {
				c.t.Fatalf("the mode ended before %s; it said %+v", what, c.trace)
			}
			c.trace.Add(l)
			if is(l) {
				return l
			}
		case <-timeout:
			c.t.Fatalf("no %s within %v; the mode said %+v", what, patience, c.trace)
		}
	}
}

// end waits for the end of the mode.
func (c *child) end() compare.Trace {
	c.t.Helper()
	c.await("the end", func(l compare.Line) bool { return l.End != nil })
	if err := <-c.done; err != nil {
		c.t.Fatal(err)
	}
	return c.trace
}

func told(typ store.EventType, id string) func(compare.Line) bool {
	return func(l compare.Line) bool { return l.Event != nil && l.Event.Type == typ && l.Event.ID == id }
}

func ready(l compare.Line) bool { return l.Ready != nil }

// Each mode tells what happens, says what the runtime said of it, and what it cost.
func TestChildTellsAndCounts(t *testing.T) {
	for _, tc := range []struct {
		mode, stream string
		calls        []string
		via          compare.Via // by which the start was first heard of
	}{
		{"generic=100ms", "off", []string{"StreamPodSandboxes", "StreamContainers", "ContainerStatus"}, compare.ViaList},
		{"evented", "up", []string{"StreamPodSandboxes", "StreamContainers", "GetContainerEvents"}, compare.ViaEvent},
		{"hybrid", "up", []string{"StreamPodSandboxes", "StreamContainers", "GetContainerEvents"}, compare.ViaEvent},
		{"hinted=100ms", "up", []string{"StreamPodSandboxes", "StreamContainers", "GetContainerEvents"}, ""},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			rt, socket := simtest.Start(t, simruntime.Config{Seed: 1})
			c := startChild(t, socket, tc.mode)
			got := c.await("ready", ready)
			if got.Ready.Runtime != "containerd" || got.Ready.Stream != tc.stream {
				t.Errorf("ready: %+v, want stream %s", got.Ready, tc.stream)
			}
			id := runContainer(t, rt, "web")
			c.await("start", told(store.ContainerStarted, id))
			if err := rt.ExitContainer(id, 7, "Error"); err != nil {
				t.Fatal(err)
			}
			died := c.await("death", told(store.ContainerDied, id)).Event
			if died.ExitCode != 7 || !died.ExitKnown || died.Pod.Name != "web" || died.OccurredAt == 0 || died.At < died.OccurredAt {
				t.Errorf("death: %+v", died)
			}
			c.say(compare.WordClose)
			trace := c.end()
			if trace.End.Err != "" || len(trace.Samples) < 2 || trace.Dropped > 0 {
				t.Errorf("end %+v after %d samples", trace.End, len(trace.Samples))
			}
			last := trace.Samples[len(trace.Samples)-1]
			if last.CPU == 0 || last.Allocs == 0 || last.RSS == 0 || last.Commits == 0 || last.Fsyncs != 2*last.Commits {
				t.Errorf("sample %+v", last)
			}
			for _, method := range tc.calls {
				if n := last.Calls[method]; n.Calls == 0 || n.Sent == 0 {
					t.Errorf("%s: %+v", method, n)
				}
			}
			if i := slices.IndexFunc(trace.Raws, func(r compare.Raw) bool { return r.ID == id }); tc.via != "" && trace.Raws[i].Via != tc.via {
				t.Errorf("first heard of by %+v", trace.Raws[i])
			}
		})
	}
}

// runContainer makes a pod with one running container.
func runContainer(t *testing.T, rt *simruntime.Runtime, name string) (id string) {
	t.Helper()
	pod, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "shop", Name: name, UID: "uid-" + name})
	if err == nil {
		id, err = rt.CreateContainer(pod, simruntime.ContainerSpec{Name: "app"})
	}
	if err == nil {
		err = rt.StartContainer(id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// A mode is ready once it has inspected what was there, whatever the runtime takes for
// it, and else the measurement would be one of its start; what hangs is said.
func TestReadyAfterTheStart(t *testing.T) {
	for _, tc := range []struct {
		name string
		rule simruntime.Rule
		left bool // something is never inspected
	}{
		{"slow", simruntime.Rule{Method: "ContainerStatus", Delay: 200 * time.Millisecond}, false},
		{"hangs", simruntime.Rule{Method: "ContainerStatus", Hang: true}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rt, socket := simtest.Start(t, simruntime.Config{Seed: 1})
			var ids []string
			for i := range 20 {
				id := runContainer(t, rt, fmt.Sprint("web-", i))
				if err := rt.ExitContainer(id, 7, "Error"); err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
			}
			rule, err := rt.AddRule(tc.rule)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(rule.Remove)
			c := startPatient(t, socket, "generic", time.Minute) // the stream would tell of what was there, too
			c.await("ready", ready)
			told := map[string]bool{}
			for _, ev := range c.trace.Events {
				if ev.Type == store.ContainerDied && ev.ExitKnown {
					told[ev.ID] = true
				}
			}
			said := slices.ContainsFunc(c.trace.Notes, func(n compare.Note) bool { return strings.Contains(n.Text, "could not be inspected in time") })
			if len(told) < len(ids) != tc.left || said != tc.left {
				t.Errorf("ready when %d of %d deaths were told with their code; notes %+v", len(told), len(ids), c.trace.Notes)
			}
		})
	}
}

// A mode that relists finds at its closing relist what its stream has lost; what
// a hint is about is looked at long before the period.
func TestHintAsksForOnePod(t *testing.T) {
	rt, socket := simtest.Start(t, simruntime.Config{Seed: 1})
	c := startChild(t, socket, "hinted=1h")
	c.await("ready", ready)
	id := runContainer(t, rt, "web")
	if err := rt.ExitContainer(id, 3, "Error"); err != nil {
		t.Fatal(err)
	}
	c.await("death", told(store.ContainerDied, id))

	silent := runContainer(t, rt, "other")
	c.say(compare.WordClose)
	c.await("start, by the closing relist", told(store.ContainerStarted, silent))
	c.end()
}

// A runtime without a stream ends the mode that needs one, with the reason.
func TestChildWithoutStream(t *testing.T) {
	_, socket := simtest.Start(t, simruntime.Config{Profile: simruntime.Containerd16})
	c := startChild(t, socket, "evented")
	end := c.await("end", func(l compare.Line) bool { return l.End != nil })
	if end.End.Err == "" {
		t.Error("evented ended without a reason")
	}
	hybrid := startChild(t, socket, "hybrid")
	if l := hybrid.await("ready", ready); l.Ready.Stream != "unsupported" {
		t.Errorf("%+v", l.Ready)
	}
	_ = hybrid.in.Close() // as when the parent is killed
	if trace := hybrid.end(); trace.End.Err != "" {
		t.Errorf("%+v", trace.End)
	}
}

func TestParseModes(t *testing.T) {
	got, err := compare.ParseModes("generic, generic=5s,evented,hybrid,hinted=200ms")
	if err != nil || len(got) != 5 || got[1].Period != 5*time.Second || got[0].Period != time.Second || got[4].Kind != compare.Hinted {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "fast", "generic=", "generic=0", "generic=-1s", "generic=2h", "evented=1s", "generic,generic", "generic=1s,generic=1s", "generic,generic=1s", ",",
		"generic=1s,generic=2s,generic=3s,generic=4s,generic=5s,generic=6s,generic=7s,generic=8s,generic=9s"} {
		if got, err := compare.ParseModes(bad); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}
