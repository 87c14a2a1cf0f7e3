package arbiter

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts runs testdata/*.txt. Each file is a story told to one core:
// commands above the line, below it all that the core decided. A file starts
// with which rule or trace it is about. `go test ./arbiter -rewrite` writes
// the answers anew; read the difference before you commit it.
//
//	runtime NAME [version=V]          an answer to Version
//	limits tombstones=N age=D         before anything else
//	connect                           a connection to the runtime was made
//	base D                            the base period is another one
//	stream up|down|unsupported
//	overflow                          events were thrown away
//	event TYPE ID [ts=T] [nil]        TYPE: CREATED STARTED STOPPED DELETED or a number; below it the payload,
//	                                  the sandbox's status first; nil: without a sandbox status
//	list | look SANDBOX | pod UID     a completed list, of everything or less; below it what it has
//	status ID notfound|error          a status call's answer, or below it the status
//	send list | half list | answer list
//	                                  the same in parts: sent; sandboxes answered and containers sent; answered.
//	                                  Likewise look, pod and status; `send list as=b` tells two apart
//	fail list|look S|pod UID          likewise; what was sent before fails
//	request UID                       a reader wants a pod looked at
//	wait D                            time passes; the core is woken if it asked for that
//	clock-step D                      the wall clock is set
//	hold | commit                     commits fail from now on; work again
//	restart                           the agent is killed and started: what was not committed is lost
//	show                              what is recorded, removed and asked
//
// An item is `ID [in=SANDBOX] STATE [field=value]...`; what has in= is a
// container. Fields are remembered by id, so each is given once: uid, ns, pod,
// name, att, image, label, created, started, code, finished, reason, ip (ip=-
// is none), hostnet. Lists carry neither start nor exit nor address. `bare`
// leaves all but the state out.
//
// Times are offsets from the start, on the wall clock unless "after" says that
// a question is not to be asked before.
func TestTranscripts(t *testing.T) {
	stories, err := filepath.Glob("testdata/*.txt") // the fuzzer keeps its own below testdata
	if err != nil || len(stories) == 0 {
		t.Fatal(stories, err)
	}
	for _, path := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { runTranscript(t, path) })
	}
}

func runTranscript(t *testing.T, path string) {
	t.Helper()
	tr := &transcript{known: map[string]Item{}, sent: map[string]*Call{}, half: map[string]*Call{}}
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		if tr.rig == nil {
			var limits Limits
			if d.Cmd == "limits" {
				limits.Tombstones, _ = strconv.Atoi(tr.args(d).get("tombstones"))
				limits.TombstoneAge, _ = span(tr.args(d).get("age"))
			}
			tr.rig = newRig(limits)
			tr.witnesses = newWitnesses(limits)
		}
		out, err := tr.run(d)
		if err != nil {
			d.Fatalf(t, "%s: %v", d.Pos, err)
		}
		for _, f := range tr.faults {
			t.Errorf("%s: %s", d.Pos, f)
		}
		tr.faults = nil
		return out
	})
}

// transcript is the state of one file.
type transcript struct {
	*rig
	known map[string]Item  // fields of each id so far
	sent  map[string]*Call // calls in parts, by name
	half  map[string]*Call // their second call, where there is one
}

// words are the arguments of a command or an item.
type words []string

func (w words) has(key string) bool {
	for _, a := range w {
		if a == key {
			return true
		}
	}
	return false
}

func (w words) get(key string) string {
	for _, a := range w {
		if v, ok := strings.CutPrefix(a, key+"="); ok {
			return v
		}
	}
	return ""
}

// at returns the n-th word that is not key=value.
func (w words) at(n int) string {
	for _, a := range w {
		if strings.Contains(a, "=") {
			continue
		}
		if n == 0 {
			return a
		}
		n--
	}
	return ""
}

func (tr *transcript) args(d *datadriven.TestData) words {
	w := make(words, 0, len(d.CmdArgs))
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			w = append(w, a.Key)
		} else {
			w = append(w, a.Key+"="+strings.Join(a.Vals, ","))
		}
	}
	return w
}

func (tr *transcript) run(d *datadriven.TestData) (string, error) {
	w := tr.args(d)
	switch d.Cmd {
	case "limits":
		return "", nil
	case "runtime":
		return tr.print(tr.step(&RuntimeSeen{At: tr.stamp(), Name: w.at(0), Version: w.get("version")})), nil
	case "stream":
		state := map[string]StreamState{"up": StreamUp, "down": StreamDown, "unsupported": StreamUnsupported}[w.at(0)]
		return tr.print(tr.step(&StreamChanged{At: tr.stamp(), State: state})), nil
	case "overflow":
		return tr.print(tr.step(&StreamOverflow{At: tr.stamp(), Lost: 1})), nil
	case "connect":
		return tr.print(tr.step(&Connected{At: tr.stamp()})), nil
	case "base":
		n, err := span(w.at(0))
		if err != nil {
			return "", err
		}
		return tr.print(tr.step(&PeriodChanged{At: tr.stamp(), Base: n})), nil
	case "request":
		return tr.print(tr.step(&Requested{At: tr.stamp(), PodKey: w.at(0)})), nil
	case "event":
		return tr.event(d, w)
	case "list", "look", "pod", "status":
		w = append(words{d.Cmd}, w...)
		tr.sendCall(w)
		if d.Cmd != "status" {
			tr.half[callName(w)] = tr.answerHalf(w)
		}
		return tr.answerCall(d, w)
	case "send":
		tr.sendCall(w)
		return "", nil
	case "half":
		tr.half[callName(w)] = tr.answerHalf(w)
		return "", nil
	case "answer":
		return tr.answerCall(d, w)
	case "fail":
		return tr.failList(w), nil
	case "wait":
		return tr.wait(w.at(0))
	case "clock-step":
		n, err := span(w.at(0))
		tr.wall += n
		return "", err
	case "hold":
		tr.held = true
		return "", nil
	case "commit":
		tr.held = false
		tr.commit()
		return "", nil
	case "restart":
		tr.sent, tr.half = map[string]*Call{}, map[string]*Call{}
		return tr.print(tr.restart()), nil
	case "show":
		return tr.show(), nil
	}
	return "", fmt.Errorf("unknown command %q", d.Cmd)
}

func (tr *transcript) wait(text string) (string, error) {
	left, err := span(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for tr.wake != 0 && tr.wake <= tr.mono+left {
		d := max(0, tr.wake-tr.mono)
		tr.pass(d)
		left -= d
		tr.wake = 0
		if text := tr.print(tr.step(&TimePassed{At: tr.stamp()})); text != nothing {
			b.WriteString(text)
		}
	}
	tr.pass(left)
	return b.String(), nil
}

// span reads a duration such as 5s or +1h, in ns.
func span(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(strings.TrimPrefix(text, "+"))
	return int64(d), err
}

// moment reads an offset from the start. A number without a unit is taken as it is.
func moment(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	d, err := span(text)
	return start + d, err
}

func (tr *transcript) event(d *datadriven.TestData, w words) (string, error) {
	ev := &EventSeen{CreatedAt: tr.wall, ID: w.at(1)}
	kinds := map[string]EventKind{"CREATED": EventCreated, "STARTED": EventStarted, "STOPPED": EventStopped, "DELETED": EventDeleted}
	kind, ok := kinds[w.at(0)]
	if !ok {
		n, err := strconv.Atoi(w.at(0))
		if err != nil {
			return "", fmt.Errorf("event type %q", w.at(0))
		}
		kind = EventKind(n)
	}
	ev.Type = kind
	if ts := w.get("ts"); ts != "" {
		var err error
		if ev.CreatedAt, err = moment(ts); err != nil {
			return "", err
		}
	}
	sandboxes, containers, err := tr.items(d.Input, true)
	if err != nil {
		return "", err
	}
	if len(sandboxes) > 0 {
		ev.Sandbox = &sandboxes[0]
	} else if !w.has("nil") {
		return "", fmt.Errorf("event without a sandbox: say nil if you mean it")
	}
	ev.Containers = containers
	ev.At = tr.stamp()
	return tr.print(tr.step(ev)), nil
}

func callName(w words) string { return w.at(0) + " " + w.at(1) + " " + w.get("as") }

func scopeOf(w words) Scope {
	switch w.at(0) {
	case "look":
		return Scope{Sandbox: w.at(1)}
	case "pod":
		return Scope{PodUID: w.at(1)}
	default:
		return Scope{}
	}
}

func (tr *transcript) sendCall(w words) {
	tr.sent[callName(w)] = &Call{Sent: tr.send()}
}

// answerHalf ends the first of a list's two calls and sends the second.
func (tr *transcript) answerHalf(w words) *Call {
	tr.sent[callName(w)].Answered = tr.stamp()
	return &Call{Sent: tr.send()}
}

func (tr *transcript) answerCall(d *datadriven.TestData, w words) (string, error) {
	name := callName(w)
	first := tr.sent[name]
	if first == nil {
		return "", fmt.Errorf("%q was not sent", name)
	}
	delete(tr.sent, name)
	if w.at(0) == "status" {
		return tr.answerStatus(d, w, first)
	}
	sandboxes, containers, err := tr.items(d.Input, false)
	if err != nil {
		return "", err
	}
	second := tr.half[name]
	if second == nil {
		return "", fmt.Errorf("say half first: the sandboxes were not answered")
	}
	delete(tr.half, name)
	second.Answered = tr.stamp()
	return tr.print(tr.step(&ListSeen{
		Scope: scopeOf(w), Sandboxes: sandboxes, Containers: containers, SandboxCall: *first, ContainerCall: *second,
	})), nil
}

// failList ends a list without an answer: one that was sent, or one sent now.
func (tr *transcript) failList(w words) string {
	name := callName(w)
	if tr.sent[name] == nil {
		tr.sendCall(w)
	}
	delete(tr.open, tr.sent[name].Sent.Tick)
	if second := tr.half[name]; second != nil {
		delete(tr.open, second.Sent.Tick)
	}
	delete(tr.sent, name)
	delete(tr.half, name)
	return tr.print(tr.step(&ListFailed{Scope: scopeOf(w), At: tr.stamp(), Err: "failed"}))
}

func (tr *transcript) answerStatus(d *datadriven.TestData, w words, call *Call) (string, error) {
	in := &StatusSeen{ID: w.at(1)}
	switch w.at(2) {
	case "notfound":
		in.NotFound = true
	case "error":
		in.Err = "internal error"
	default:
		sandboxes, containers, err := tr.items(d.Input, true)
		if err != nil {
			return "", err
		}
		if len(sandboxes)+len(containers) != 1 {
			return "", fmt.Errorf("want one status")
		}
		for _, items := range [][]Item{sandboxes, containers} {
			for i := range items {
				in.Item = &items[i]
			}
		}
	}
	if it, ok := tr.known[in.ID]; ok {
		in.Kind = it.Kind
	}
	call.Answered = tr.stamp()
	in.Call = *call
	return tr.print(tr.step(in)), nil
}
