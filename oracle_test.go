package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// told returns what the journal says of each entity, in order. A code that came
// after its death, as an amendment, is put in its place: which of the stream and
// the relists is first is a matter of scheduling.
func told(events []pleg.Event) map[string][]string {
	m := map[string][]string{}
	for _, ev := range events {
		id, word := ev.Container.ID, string(ev.Type)
		if id == "" {
			id = ev.SandboxID
		}
		if ev.Type == store.ContainerDied {
			word = "ContainerDied/unknown"
			if ev.ExitKnown {
				word = fmt.Sprintf("ContainerDied/%d", ev.ExitCode)
			}
		}
		if i := slices.Index(m[id], "ContainerDied/unknown"); i >= 0 && ev.Change == store.ChangeAmended && ev.ExitKnown {
			m[id][i] = fmt.Sprintf("ContainerDied/%d", ev.ExitCode)
			continue
		}
		if ev.Change != "" {
			word += "/" + string(ev.Change)
		}
		m[id] = append(m[id], word)
	}
	return m
}

// happened returns what the runtime's own history says of each entity.
func happened(history []simruntime.Transition) map[string][]string {
	words := map[simruntime.Step][2]store.EventType{
		simruntime.Created:     {store.SandboxCreated, store.ContainerCreated},
		simruntime.Ready:       {store.SandboxReady, ""},
		simruntime.NotReady:    {store.SandboxNotReady, ""},
		simruntime.Started:     {"", store.ContainerStarted},
		simruntime.StartFailed: {"", store.ContainerDied},
		simruntime.Exited:      {"", store.ContainerDied},
		simruntime.Removed:     {store.SandboxRemoved, store.ContainerRemoved},
	}
	m := map[string][]string{}
	for _, tr := range history {
		i := 0
		if tr.Kind == simruntime.Container {
			i = 1
		}
		word := string(words[tr.Step][i])
		if word == string(store.ContainerDied) {
			word = fmt.Sprintf("%s/%d", word, tr.ExitCode)
		}
		m[tr.ID] = append(m[tr.ID], word)
	}
	return m
}

// cached returns the state of every entity as readers see it.
func cached(g *pleg.Generator) map[string]string {
	m := map[string]string{}
	pods, _ := g.Pods()
	for _, p := range pods {
		for _, s := range p.Sandboxes {
			m[s.ID] = s.State
		}
		for _, c := range p.Containers {
			m[c.ID] = c.State
		}
	}
	return m
}

// truth returns the state of every entity as the runtime has it.
func truth(rt *simruntime.Runtime) map[string]string {
	m := map[string]string{}
	tr := rt.Truth()
	for _, s := range tr.Sandboxes {
		m[s.GetId()] = map[string]string{"SANDBOX_READY": "ready", "SANDBOX_NOTREADY": "notready"}[s.GetState().String()]
	}
	for _, c := range tr.Containers {
		m[c.Status.GetId()] = map[string]string{"CONTAINER_CREATED": "created", "CONTAINER_RUNNING": "running", "CONTAINER_EXITED": "exited"}[c.Status.GetState().String()]
	}
	return m
}

// churn plays a workload of so many transitions.
func churn(t *testing.T, rt *simruntime.Runtime, w *simruntime.Workload, transitions int, pause time.Duration) {
	t.Helper()
	for n := 0; n < transitions; time.Sleep(pause) {
		k, err := w.Step()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		n += max(k, 1)
	}
}

// agree compares the cache with the runtime's state.
func (a *agent) agree(rt *simruntime.Runtime) {
	a.t.Helper()
	if diff := cmp.Diff(truth(rt), cached(a.g)); diff != "" {
		a.t.Errorf("cache differs from the runtime (-truth +cached):\n%s", diff)
	}
}

// toldHistory compares the journal with the runtime's history.
func (a *agent) toldHistory(rt *simruntime.Runtime) {
	a.t.Helper()
	if diff := cmp.Diff(happened(rt.History()), told(a.read())); diff != "" {
		a.t.Errorf("journal differs from history (-happened +told):\n%s", diff)
	}
}

// toldNothingFalse checks that of each entity the journal tells a part of its
// history, in order and nothing twice: all that can be asked where lives may be
// too short to be seen. Of what was not seen, only a death may be inferred,
// without its code.
func (a *agent) toldNothingFalse(rt *simruntime.Runtime) {
	a.t.Helper()
	all := happened(rt.History())
	for id, words := range told(a.read()) {
		rest := all[id]
		for _, word := range words {
			i := slices.IndexFunc(rest, func(w string) bool {
				return w == word || word == "ContainerDied/unknown" && strings.HasPrefix(w, "ContainerDied/")
			})
			if i < 0 {
				a.t.Errorf("%s: told %v, happened %v", id, words, all[id])
				break
			}
			rest = rest[i+1:]
		}
	}
}
