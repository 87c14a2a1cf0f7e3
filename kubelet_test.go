package pleg_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// kubeletStates are the states of GenericPLEG, and the events of ours that lead
// there: of a container, and of a sandbox.
var kubeletStates = []struct {
	name       string
	containers []store.Event
	sandboxes  []store.Event
}{
	{"non-existent", []store.Event{{Type: store.ContainerRemoved}}, []store.Event{{Type: store.SandboxRemoved}}},
	{"unknown", []store.Event{{Type: store.ContainerCreated}, {Type: store.ContainerChanged, Change: store.ChangeUnknown, State: "unknown"},
		{Type: store.ContainerChanged, Change: store.ChangeRegressed, State: "created"}},
		[]store.Event{{Type: store.SandboxChanged, Change: store.ChangeUnknown, State: "unknown"}}},
	{"running", []store.Event{{Type: store.ContainerStarted}, {Type: store.ContainerChanged, Change: store.ChangeRegressed, State: "running"}},
		[]store.Event{{Type: store.SandboxReady}, {Type: store.SandboxChanged, Change: store.ChangeRegressed, State: "ready"}}},
	{"exited", []store.Event{{Type: store.ContainerDied}}, []store.Event{{Type: store.SandboxNotReady}}},
}

// TestKubeletTransitions: every pair of an old and a new state, for containers
// and for sandboxes, against the table of GenericPLEG 1.29: to running Started,
// to exited Died, to unknown nothing (Changed is dropped), to non-existent
// Removed if it was exited, else Died and Removed; no change, nothing.
func TestKubeletTransitions(t *testing.T) {
	t.Parallel()
	s, d, r := pleg.KubeletContainerStarted, pleg.KubeletContainerDied, pleg.KubeletContainerRemoved
	want := map[string][]pleg.KubeletEventType{
		"non-existent to non-existent": nil, "non-existent to unknown": nil, "non-existent to running": {s}, "non-existent to exited": {d},
		"unknown to non-existent": {d, r}, "unknown to unknown": nil, "unknown to running": {s}, "unknown to exited": {d},
		"running to non-existent": {d, r}, "running to unknown": nil, "running to running": nil, "running to exited": {d},
		"exited to non-existent": {r}, "exited to unknown": nil, "exited to running": {s}, "exited to exited": nil,
	}
	for _, old := range kubeletStates {
		for _, state := range kubeletStates {
			name := old.name + " to " + state.name
			check := func(before *store.Event, after store.Event) {
				var feed pleg.KubeletFeed
				id := store.EventContainer{ID: "id"}
				sandbox := after.Type == store.SandboxRemoved || after.Type == store.SandboxChanged || after.Type == store.SandboxReady || after.Type == store.SandboxNotReady
				for i, ev := range []*store.Event{{Type: store.ContainerCreated}, before, &after} {
					if ev == nil {
						continue
					}
					e := *ev
					e.Pod.UID, e.Position.Seq = "uid", uint64(i)
					if i == 0 { // both begin with an entry that leads to no state of the kubelet's own
						if !sandbox || before == nil {
							continue
						}
						e.Type = store.SandboxCreated
					}
					if sandbox {
						e.SandboxID = "id"
					} else {
						e.SandboxID, e.Container = "pod", id
					}
					got := feed.Events(&e)
					if i != 2 {
						continue
					}
					var types []pleg.KubeletEventType
					for _, k := range got {
						types = append(types, k.Type)
						if k.PodUID != "uid" || k.ContainerID != "id" || k.Position.Seq != 2 {
							t.Errorf("%s: %+v", name, k)
						}
					}
					if !slices.Equal(types, want[name]) {
						t.Errorf("%s by %s %s: %v, want %v", name, after.Type, after.State, types, want[name])
					}
				}
			}
			pairs := func(olds, news []store.Event) {
				for _, after := range news {
					if old.name == "non-existent" {
						if state.name != "non-existent" { // what never was is not removed
							check(nil, after)
						}
						continue
					}
					for _, before := range olds {
						check(&before, after)
					}
				}
			}
			pairs(old.containers, state.containers)
			pairs(old.sandboxes, state.sandboxes)
		}
	}
}

// TestKubeletFeedIgnores what is no transition, and what nobody could know.
func TestKubeletFeedIgnores(t *testing.T) {
	t.Parallel()
	var feed pleg.KubeletFeed
	for _, tc := range []struct {
		ev   store.Event
		want int
	}{
		{store.Event{Type: store.SequenceSkipped, From: 1, To: 2}, 0},
		{store.Event{Type: store.SandboxCreated, SandboxID: "s"}, 0},
		{store.Event{Type: store.SandboxRemoved, SandboxID: "s"}, 0}, // no list ever had it
		{store.Event{Type: store.ContainerRemoved, SandboxID: "s", Container: store.EventContainer{ID: "c"}}, 1},
		{store.Event{Type: store.ContainerStarted, SandboxID: "s", Container: store.EventContainer{ID: "d"}}, 1},
		{store.Event{Type: store.ContainerChanged, Change: store.ChangeAmended, State: "exited", SandboxID: "s", Container: store.EventContainer{ID: "d"}}, 0},
		{store.Event{Type: store.ContainerDied, SandboxID: "s", Container: store.EventContainer{ID: "d"}}, 1},
		{store.Event{Type: store.ContainerRemoved, SandboxID: "s", Container: store.EventContainer{ID: "d"}}, 1},
	} {
		if got := feed.Events(&tc.ev); len(got) != tc.want {
			t.Errorf("%s: %+v, want %d", tc.ev.Type, got, tc.want)
		}
	}
	b, err := json.Marshal(pleg.KubeletEvent{Type: pleg.KubeletContainerDied, PodUID: "u", ContainerID: "c"})
	if want := `{"position":"0000000000000000/0","pod_uid":"u","type":"ContainerDied","container_id":"c"}`; err != nil || string(b) != want {
		t.Errorf("%s, %v, want %s", b, err, want)
	}
}

// genericPLEG is GenericPLEG's diff of two lists, written anew from its
// description: it knows only the last list.
type genericPLEG struct{ last map[string]string }

// relist returns the events of a list, by id in the order of sending.
func (g *genericPLEG) relist(list map[string]string) map[string][]string {
	told := map[string][]string{}
	for _, id := range append(mapKeys(list), mapKeys(g.last)...) {
		if told[id] != nil {
			continue
		}
		was, is := plegState(g.last[id]), plegState(list[id])
		told[id] = []string{}
		if was == is {
			continue
		}
		switch is {
		case "running":
			told[id] = append(told[id], "ContainerStarted")
		case "exited":
			told[id] = append(told[id], "ContainerDied")
		case "unknown": // ContainerChanged
		case "non-existent":
			if was != "exited" {
				told[id] = append(told[id], "ContainerDied")
			}
			told[id] = append(told[id], "ContainerRemoved")
		}
	}
	g.last = list
	return told
}

// plegState maps a CRI state.
func plegState(cri string) string {
	return map[string]string{
		"": "non-existent", "CREATED": "unknown", "RUNNING": "running", "EXITED": "exited", "READY": "running", "NOTREADY": "exited",
	}[cri]
}

func mapKeys(m map[string]string) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// listed is an arbiter's core that lives on lists, as in mode generic, and gets
// truthful answers to what it asks.
type listed struct {
	core *arbiter.Core
	feed pleg.KubeletFeed
	now  arbiter.Now
	last map[string]string
	todo []arbiter.Action
	told map[string][]string
}

// criNumbers are the CRI's.
var criNumbers = map[string]int32{"CREATED": 0, "RUNNING": 1, "EXITED": 2, "READY": 0, "NOTREADY": 1}

func (l *listed) stamp() timestamps.Stamp {
	l.now.Stamp.Tick++
	return l.now.Stamp
}

func (l *listed) pass(ns int64) {
	l.now.Stamp.Mono += ns
	l.now.Stamp.Wall += ns
	l.now.Running += ns
}

// item is what the runtime says of an id: "s1", or "c1" of sandbox s1.
func (l *listed) item(id string, full bool) arbiter.Item {
	i := arbiter.Item{Kind: store.KindContainer, ID: id, Sandbox: "s" + id[1:], State: criNumbers[l.last[id]], CreatedAt: 1e18, Full: full}
	if id[0] == 's' {
		i.Kind, i.IPs, i.HostNetwork = store.KindSandbox, []string{"10.0.0.1"}, full
		return i
	}
	if full && l.last[id] != "CREATED" {
		i.StartedAt = 1e18 + 1
	}
	if full && l.last[id] == "EXITED" {
		i.Exit = store.Exit{FinishedAt: 1e18 + 2, Code: 1, Reason: "Error"}
	}
	return i
}

func (l *listed) step(in arbiter.Input) {
	l.stamp()
	out := l.core.Step(l.now, in)
	l.todo = append(l.todo, out.Actions...)
	for i := range out.Changes.Events {
		for _, k := range l.feed.Events(&out.Changes.Events[i]) {
			l.told[k.ContainerID] = append(l.told[k.ContainerID], string(k.Type))
		}
	}
	if out.Wake != 0 && len(l.todo) == 0 {
		l.pass(max(0, out.Wake-l.now.Stamp.Mono))
		l.step(&arbiter.TimePassed{At: l.stamp()})
	}
}

// list submits a list of what the scope covers.
func (l *listed) list(scope arbiter.Scope) {
	in := &arbiter.ListSeen{Scope: scope}
	in.SandboxCall.Sent = l.stamp()
	for _, id := range mapKeys(l.last) {
		item := l.item(id, false)
		switch {
		case scope.Sandbox != "" && item.Sandbox != scope.Sandbox, scope.PodUID != "" && item.Sandbox != scope.PodUID:
		case item.Kind == store.KindSandbox:
			in.Sandboxes = append(in.Sandboxes, item)
		default:
			in.Containers = append(in.Containers, item)
		}
	}
	in.SandboxCall.Answered = l.stamp()
	in.ContainerCall = arbiter.Call{Sent: l.stamp(), Answered: l.stamp()}
	l.step(in)
}

// relist submits a full list and answers everything that is asked because of it.
func (l *listed) relist(t *rapid.T, list map[string]string) {
	l.last = list
	l.list(arbiter.Scope{})
	for n := 0; len(l.todo) > 0; n++ {
		if n > 1000 {
			t.Fatalf("it never stops asking: %+v", l.todo)
		}
		a := l.todo[0]
		l.todo = l.todo[1:]
		l.pass(max(0, a.NotBefore-l.now.Stamp.Mono))
		switch a.Kind {
		case arbiter.ActStatus:
			in := &arbiter.StatusSeen{ID: a.ID, Kind: store.KindContainer, Call: arbiter.Call{Sent: l.stamp(), Answered: l.stamp()}, NotFound: l.last[a.ID] == ""}
			if a.ID[0] == 's' {
				in.Kind = store.KindSandbox
			}
			if !in.NotFound {
				item := l.item(a.ID, true)
				in.Item = &item
			}
			l.step(in)
		case arbiter.ActLook:
			l.list(arbiter.Scope{Sandbox: a.ID})
		case arbiter.ActPod:
			l.list(arbiter.Scope{PodUID: a.ID})
		case arbiter.ActList:
			l.list(arbiter.Scope{})
		}
	}
}

// TestKubeletFeedIsGenericPLEG gives the same lists to GenericPLEG's rule and to
// the arbiter with the feed behind it. For each id the feed must send what
// GenericPLEG sends, in its order, and nothing else but a ContainerStarted right
// before a ContainerDied: of what was first listed as exited the runtime says
// that it had started, which GenericPLEG could not see. Ids are never reused,
// so what is gone stays gone.
func TestKubeletFeedIsGenericPLEG(t *testing.T) {
	t.Parallel()
	extras := 0
	rapid.Check(t, func(t *rapid.T) {
		theirs, sent := new(genericPLEG), map[string][]string{}
		ours := &listed{core: arbiter.NewCore(arbiter.DefaultLimits, "boot"), told: map[string][]string{}}
		ours.now.Stamp.Wall = 1_767_225_600_000_000_000
		ours.step(&arbiter.RuntimeSeen{At: ours.stamp(), Name: "containerd", Version: "v2.4.2"})
		gone := map[string]bool{}
		for range rapid.IntRange(1, 12).Draw(t, "lists") {
			list := map[string]string{}
			for _, id := range []string{"s1", "s2", "c1", "c2"} {
				states := []string{"", "CREATED", "RUNNING", "EXITED"}
				if id[0] == 's' {
					states = []string{"", "READY", "NOTREADY"}
				}
				state := rapid.SampledFrom(states).Draw(t, id)
				gone[id] = gone[id] || state == "" && ours.last[id] != ""
				if state != "" && !gone[id] {
					list[id] = state
				}
			}
			for id, events := range theirs.relist(list) {
				sent[id] = append(sent[id], events...)
			}
			ours.pass(120e9) // states are lowered once a minute
			ours.relist(t, list)
		}
		for range 3 { // what two witnesses have to agree on
			ours.pass(120e9)
			ours.relist(t, ours.last)
		}
		for id := range gone {
			extra, err := sameFeed(sent[id], ours.told[id])
			extras += extra
			if err != nil {
				t.Errorf("%s: %v\nGenericPLEG %v\nours        %v", id, err, sent[id], ours.told[id])
			}
		}
	})
	if extras == 0 {
		t.Error("GenericPLEG was never blind, so nothing was compared that could differ")
	}
}

// sameFeed compares what is sent of one id.
func sameFeed(theirs, ours []string) (extra int, err error) {
	i := 0
	for j, event := range ours {
		switch {
		case i < len(theirs) && theirs[i] == event:
			i++
		case event == "ContainerStarted" && j+1 < len(ours) && ours[j+1] == "ContainerDied":
			extra++
		default:
			return extra, fmt.Errorf("%s is too much", event)
		}
	}
	if i < len(theirs) {
		return extra, fmt.Errorf("%s is missing", theirs[i])
	}
	return extra, nil
}
