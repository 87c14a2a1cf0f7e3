package field_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// view is what can be said of a sandbox or container from both sides.
type view struct {
	State                      string // "" where the runtime reports none that means something
	Reported                   string
	Pod, Sandbox               string // the pod's key
	Name                       string
	Attempt                    uint32
	Created, Started, Finished int64
	Exit                       string
	IPs                        string // "" once the runtime reports none, since an address is kept
}

// nameless is the key of the pod of a sandbox to which nobody gave a UID.
func nameless(sandbox string) string { return "sandbox:" + sandbox }

// number is how a state outside the enum is shown; -1 is the agent's own for
// none.
func number(state int32) string {
	if state == store.ReportedNone {
		return "unknown"
	}
	return strconv.Itoa(int(state))
}

// truth is the runtime's side of G2.
func (f *field) truth() map[string]view {
	m, podOf := map[string]view{}, map[string]string{}
	tr := f.rt.Truth()
	for _, s := range tr.Sandboxes {
		key := s.GetMetadata().GetUid()
		if key == "" {
			key = s.GetLabels()[simruntime.LabelPodUID]
		}
		if key == "" {
			key = nameless(s.GetId())
		}
		podOf[s.GetId()] = key
		v := view{Pod: key, Sandbox: s.GetId(), Attempt: s.GetMetadata().GetAttempt(), Created: s.GetCreatedAt()}
		switch s.GetState() {
		case sbReady:
			v.State, v.Reported = "ready", "ready"
		case sbNotReady:
			v.State, v.Reported = "notready", "notready"
		default: // a number outside the enum is shown as it is
			v.Reported = number(int32(s.GetState()))
		}
		var ips []string
		if ip := s.GetNetwork().GetIp(); ip != "" {
			ips = append(ips, ip)
		}
		for _, ip := range s.GetNetwork().GetAdditionalIps() {
			ips = append(ips, ip.GetIp())
		}
		v.IPs = strings.Join(ips, ",")
		m[s.GetId()] = v
	}
	for _, tc := range tr.Containers {
		c := tc.Status
		key, ok := podOf[tc.SandboxID]
		if !ok {
			key = c.GetLabels()[simruntime.LabelPodUID]
		}
		v := view{
			Pod: key, Sandbox: tc.SandboxID, Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(),
			Created: c.GetCreatedAt(), Started: c.GetStartedAt(),
		}
		switch c.GetState() {
		case created:
			v.State, v.Reported = "created", "created"
		case running:
			v.State, v.Reported = "running", "running"
		case exited:
			v.State, v.Reported = "exited", "exited"
			if c.GetFinishedAt() != 0 {
				v.Finished, v.Exit = c.GetFinishedAt(), fmt.Sprint(c.GetExitCode())
			}
		case unknown:
			v.Reported = "unknown"
		default:
			v.Reported = number(int32(c.GetState()))
		}
		m[c.GetId()] = v
	}
	return m
}

// nanos turns a time back into the runtime's, 0 for unknown.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// cached is the agent's side of G2.
func cached(pods []pleg.Pod) map[string]view {
	m := map[string]view{}
	for _, p := range pods {
		for _, s := range p.Sandboxes {
			m[s.ID] = view{
				State: s.State, Reported: s.Reported, Pod: p.Key, Sandbox: s.ID, Attempt: s.Attempt, Created: nanos(s.CreatedAt),
				IPs: strings.Join(s.IPs, ","),
			}
		}
		for _, c := range p.Containers {
			v := view{
				State: c.State, Reported: c.Reported, Pod: p.Key, Sandbox: c.SandboxID, Name: c.Name, Attempt: c.Attempt,
				Created: nanos(c.CreatedAt), Started: nanos(c.StartedAt), Finished: nanos(c.FinishedAt),
			}
			if c.ExitCode != nil {
				v.Exit = fmt.Sprint(*c.ExitCode)
			}
			m[c.ID] = v
		}
	}
	return m
}

// disagreement compares cache and runtime; "" if they agree.
func (f *field) disagreement() string {
	pods, _ := f.g().Pods()
	return f.disagrees(pods)
}

func (f *field) disagrees(pods []pleg.Pod) string {
	want, got := f.truth(), cached(pods)
	for id, w := range want {
		g, ok := got[id]
		if !ok {
			continue
		}
		if w.State == "" { // UNKNOWN: how far it had come before stays, and its end (G3)
			g.State, g.Exit, g.Finished = "", "", 0
		}
		if w.IPs == "" {
			g.IPs = ""
		}
		got[id] = g
	}
	if maps.Equal(want, got) {
		return ""
	}
	named := func(m map[string]view) map[string]view {
		out := map[string]view{}
		for id, v := range m {
			v.Pod, v.Sandbox = short(v.Pod), short(v.Sandbox)
			out[short(id)] = v
		}
		return out
	}
	return cmp.Diff(named(want), named(got))
}

// told returns what was told of an entity, in order and over all lives, as
// words: Created, Started, Died/3, Died/unknown, Removed; Ready, NotReady;
// unknown, regressed. A code that came after its death, as an amendment, is put
// in its place, and other amendments are left out: which of the stream and the
// relists is first is a matter of scheduling.
func told(events []pleg.Event, id string) []string {
	var words []string
	for _, ev := range events {
		if ev.EntityID() != id {
			continue
		}
		word := strings.TrimPrefix(strings.TrimPrefix(string(ev.Type), "Container"), "Sandbox")
		switch {
		case ev.Type == store.ContainerDied:
			word = "Died/" + exitOf(ev)
		case ev.Change == store.ChangeAmended:
			if i := slices.Index(words, "Died/unknown"); i >= 0 && ev.ExitKnown {
				words[i] = "Died/" + exitOf(ev)
			}
			continue
		case ev.Change != "":
			word = string(ev.Change)
		}
		words = append(words, word)
	}
	return words
}

func exitOf(ev pleg.Event) string {
	if !ev.ExitKnown {
		return "unknown"
	}
	return fmt.Sprint(ev.ExitCode)
}

// told returns what was told of an entity by now.
func (f *field) told(id string) []string { return told(f.all(), id) }

// wantsAll is wants for many entities of which the same is told.
func (f *field) wantsAll(ids []string, words ...string) {
	f.t.Helper()
	f.caughtUp()
	events := map[string][]pleg.Event{}
	for _, ev := range f.all() {
		events[ev.EntityID()] = append(events[ev.EntityID()], ev)
	}
	for _, id := range ids {
		if got := told(events[id], id); !slices.Equal(got, words) {
			f.t.Errorf("told of %s: %v, want %v", short(id), got, words)
		}
	}
}

// soon waits until a word is told of an entity.
func (f *field) soon(id, word string) {
	f.t.Helper()
	f.until(word+" of "+short(id), func() bool { return slices.Contains(f.told(id), word) })
}

// wants checks all that was told of an entity.
func (f *field) wants(id string, words ...string) {
	f.t.Helper()
	f.caughtUp()
	if got := f.told(id); !slices.Equal(got, words) {
		f.t.Errorf("told of %s: %v, want %v", short(id), got, words)
	}
}

// never checks that a word was not told of an entity.
func (f *field) never(id string, words ...string) {
	f.t.Helper()
	f.caughtUp()
	for _, got := range f.told(id) {
		if word, _, _ := strings.Cut(got, "/"); slices.Contains(words, word) || slices.Contains(words, got) {
			f.t.Errorf("told of %s: %v", short(id), f.told(id))
		}
	}
}

// event1 returns the first event of a type that an entity had.
func (f *field) event1(id string, typ store.EventType) pleg.Event {
	f.t.Helper()
	for _, ev := range f.all() {
		if ev.EntityID() == id && ev.Type == typ {
			return ev
		}
	}
	f.t.Fatalf("no %s of %s", typ, short(id))
	return pleg.Event{}
}

// shown returns a container or sandbox as readers see it.
func (f *field) shown(id string) (view, bool) {
	pods, _ := f.g().Pods()
	v, ok := cached(pods)[id]
	return v, ok
}

// podOf returns a pod as readers see it, zero if there is none.
func (f *field) podOf(uid string) pleg.Pod {
	p, err := f.g().Pod(uid)
	if err != nil {
		return pleg.Pod{}
	}
	return p
}

// statusCalls returns the status calls for an id.
func (f *field) statusCalls(id string) (calls []simruntime.Call) {
	for _, c := range f.rt.Calls() {
		if c.ID == id && (c.Method == "ContainerStatus" || c.Method == "PodSandboxStatus") {
			calls = append(calls, c)
		}
	}
	return calls
}
