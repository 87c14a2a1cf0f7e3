package field_test

import (
	"fmt"
	"slices"
	"strings"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/oracletest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// view is what can be said of a sandbox or container from both sides.
type view = oracletest.View

// cached is the agent's side of G2.
func cached(pods []pleg.Pod) map[string]view { return oracletest.Shown(pods) }

// nameless is the key of the pod of a sandbox to which nobody gave a UID.
func nameless(sandbox string) string { return oracletest.Nameless(sandbox) }

// disagreement compares cache and runtime; "" if they agree.
func (f *field) disagreement() string {
	pods, _ := f.g().Pods()
	return f.disagrees(pods)
}

func (f *field) disagrees(pods []pleg.Pod) string { return oracletest.Disagreement(f.rt.Truth(), pods) }

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
