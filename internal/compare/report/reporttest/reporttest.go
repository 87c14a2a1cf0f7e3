// Package reporttest makes a report for tests: a small one with every fault, and
// with names that are markup.
package reporttest

import (
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/store"
)

// begin is when the measurement begins.
var begin = time.Date(2026, 1, 2, 15, 4, 0, 0, time.UTC).UnixNano()

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
)

// Evil is the name of a pod that a page must not take for markup.
const Evil = `"><script>alert("evil")</script>`

// Report returns the report: on eight pods with a container each that lives for
// four seconds, generic is slow and misses one start, evented misses the removals
// of one and tells a wrong code, hybrid tells all well, hinted did not run.
func Report() *compare.Report {
	generic, evented, hybrid, hinted := newTrace("generic"), newTrace("evented"), newTrace("hybrid"), newTrace("hinted")
	hinted.Ready, hinted.End = nil, &compare.End{Err: "event stream is not supported by the runtime"}
	evented.Notes = []compare.Note{{At: begin, Text: "the stream ended"}}
	for i := range int64(8) {
		live(i, generic, evented, hybrid)
	}
	for _, t := range []*compare.Trace{generic, evented, hybrid} {
		cost(t)
	}
	return compare.Judge(compare.Input{
		Traces: []*compare.Trace{generic, evented, hybrid, hinted}, From: begin, To: begin + 15*second, Close: begin + 18*second,
		Late: compare.DefaultLate, Load: "8 pods", Notes: []string{"interrupted after 15s"},
		Runtime: compare.Runtime{Endpoint: "/run/sim.sock", Name: "containerd", Version: "v2.4.2", PID: 4711, CPU: 300 * time.Millisecond,
			Series: []compare.CPUPoint{{At: begin + second, Share: 0.02}, {At: begin + 8*second, Share: 0.05}, {At: begin + 15*second, Share: 0.01}}},
	})
}

func newTrace(mode string) *compare.Trace {
	m, err := compare.ParseMode(mode)
	if err != nil {
		panic(err)
	}
	return &compare.Trace{Mode: m, Ready: &compare.Ready{At: begin - second, Runtime: "containerd", Version: "v2.4.2", Stream: "up"}, End: &compare.End{At: begin + 20*second}}
}

// live lets one container live.
func live(i int64, generic, evented, hybrid *compare.Trace) {
	id := fmt.Sprintf("c%d7f3a9d1e5b2c4", i)
	pod := compare.Pod{UID: fmt.Sprint("uid-", i), Namespace: "shop", Name: fmt.Sprint("web-", i)}
	if i == 3 {
		pod.Name = Evil
	}
	at := begin + i*second
	status := compare.Raw{Via: compare.ViaStatus, ID: id, Kind: "container", Sandbox: "s", Pod: pod, CreatedAt: at}
	for n, typ := range compare.Types[4:] {
		happened := at + int64(n)*second
		told := compare.Event{Type: typ, ID: id, Sandbox: "s", Pod: pod, Name: "app", OccurredAt: happened}
		raw := compare.Raw{Via: compare.ViaEvent, ID: id, Kind: "container", Says: []string{"CREATED", "STARTED", "STOPPED", "DELETED"}[n], EventAt: happened}
		switch typ {
		case store.ContainerStarted:
			status.StartedAt, status.Says = happened, "RUNNING"
		case store.ContainerDied:
			status.FinishedAt, status.ExitCode, status.Reason, status.Says = happened, 7, "Error", "EXITED"
			told.ExitKnown, told.ExitCode, told.Reason = true, 7, "Error"
		case store.ContainerRemoved:
			told.OccurredAt = 0
		}
		tell := func(t *compare.Trace, after int64, change func(*compare.Event)) {
			e := told
			e.At = happened + after
			if change != nil {
				change(&e)
			}
			t.Events = append(t.Events, e)
			if typ == store.ContainerStarted || typ == store.ContainerDied {
				s := status
				s.At = e.At
				t.Raws = append(t.Raws, s)
			}
		}
		if i != 2 || typ != store.ContainerStarted {
			tell(generic, 300*ms+i*90*ms, nil)
		}
		r := raw
		r.At = happened + ms
		hybrid.Raws = append(hybrid.Raws, r)
		tell(hybrid, 2*ms+i*ms/4, nil)
		switch {
		case i == 3 && typ == store.ContainerRemoved:
			evented.Raws = append(evented.Raws, compare.Raw{At: happened, Via: compare.ViaCall, Method: "GetContainerEvents", Says: "the stream ended without an error"})
			continue
		case i == 4 && typ == store.ContainerDied:
			tell(evented, ms, func(e *compare.Event) { e.ExitCode, e.Reason = 0, "Completed" })
		case i == 5 && typ == store.ContainerDied:
			tell(evented, 2500*ms, nil)
		default:
			tell(evented, ms+i*ms/5, nil)
		}
		evented.Raws = append(evented.Raws, r)
	}
}

// cost makes the samples of a mode.
func cost(t *compare.Trace) {
	each := map[compare.Kind]uint64{compare.Generic: 3, compare.Evented: 1, compare.Hybrid: 2}[t.Mode.Kind]
	for i := range uint64(18) {
		t.Samples = append(t.Samples, compare.Sample{
			At: begin + int64(i)*second, CPU: int64(i*each) * 10 * ms, Allocs: 1000 * i * each, Alloced: 50_000 * i * each, RSS: 30 << 20,
			Commits: 4 * i, Fsyncs: 8 * i,
			Calls: map[string]compare.Calls{
				"ListContainers":     {Calls: i * each, Sent: int64(20 * i * each), Received: int64(4000 * i * each)},
				"GetContainerEvents": {Calls: 1, Sent: 10, Received: int64(2500 * i * (3 - each))},
			},
		})
	}
}
