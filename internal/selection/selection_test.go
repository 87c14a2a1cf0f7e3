package selection

import (
	"errors"
	"strings"
	"testing"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

var web = store.Event{
	Type: store.ContainerDied, SandboxID: "s1", Source: timestamps.FromStream,
	Pod:       store.EventPod{UID: "u1", Namespace: "shop", Name: "web-1", Labels: map[string]string{"app": "web", "tier": "front"}},
	Container: store.EventContainer{ID: "c1", Name: "nginx"},
}

// TestEvent: values of one key are alternatives, keys must all agree.
func TestEvent(t *testing.T) {
	sandbox := web
	sandbox.Type, sandbox.Container = store.SandboxReady, store.EventContainer{}
	loose := web
	loose.Pod = store.EventPod{}
	for _, tt := range []struct {
		what string
		f    Filter
		ev   store.Event
		want bool
	}{
		{"nothing asked", Filter{}, web, true},
		{"namespace", Filter{Namespaces: []string{"shop"}}, web, true},
		{"either namespace", Filter{Namespaces: []string{"other", "shop"}}, web, true},
		{"other namespace", Filter{Namespaces: []string{"other"}}, web, false},
		{"a part of a namespace is none", Filter{Namespaces: []string{"sho"}}, web, false},
		{"pod", Filter{Pods: []string{"web-1"}}, web, true},
		{"other pod", Filter{Pods: []string{"web-2"}}, web, false},
		{"uid", Filter{UIDs: []string{"u1"}}, web, true},
		{"other uid", Filter{UIDs: []string{"u2"}}, web, false},
		{"key of a pod without uid", Filter{UIDs: []string{"sandbox:s1"}}, loose, true},
		{"key of a pod with uid is its uid", Filter{UIDs: []string{"sandbox:s1"}}, web, false},
		{"container", Filter{Containers: []string{"nginx"}}, web, true},
		{"other container", Filter{Containers: []string{"redis"}}, web, false},
		{"a sandbox has no container", Filter{Containers: []string{"nginx"}}, sandbox, false},
		{"labels", Filter{Labels: "app=web,tier in (front, back),!canary"}, web, true},
		{"other labels", Filter{Labels: "app!=web"}, web, false},
		{"type", Filter{Types: []string{"ContainerStarted", "ContainerDied"}}, web, true},
		{"other type", Filter{Types: []string{"ContainerStarted"}}, web, false},
		{"source", Filter{Sources: []string{"stream"}}, web, true},
		{"other source", Filter{Sources: []string{"relist", "inspect"}}, web, false},
		{"all keys agree", Filter{Namespaces: []string{"shop"}, Types: []string{"ContainerDied"}, Labels: "app"}, web, true},
		{"one key disagrees", Filter{Namespaces: []string{"shop"}, Types: []string{"ContainerDied"}, Labels: "!app"}, web, false},
	} {
		s, err := New(tt.f)
		if err != nil {
			t.Errorf("%s: %v", tt.what, err)
			continue
		}
		if got := s.Event(&tt.ev); got != tt.want {
			t.Errorf("%s: selected %v, want %v", tt.what, got, tt.want)
		}
	}
	if !(*Selection)(nil).Event(&web) {
		t.Error("no selection selects everything")
	}
}

// TestSkips: numbers that hold nothing are of no pod. They are told to whoever
// asks for nothing particular, and to whoever asks for them.
func TestSkips(t *testing.T) {
	skip := store.Event{Type: store.SequenceSkipped, From: 3, To: 9}
	for _, tt := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true},
		{Filter{Types: []string{"SequenceSkipped"}}, true},
		{Filter{Types: []string{"SequenceSkipped"}, Namespaces: []string{"shop"}}, true},
		{Filter{Types: []string{"ContainerDied"}}, false},
		{Filter{Namespaces: []string{"shop"}}, false},
		{Filter{Labels: "!app"}, false},
		{Filter{Sources: []string{"stream"}}, false},
	} {
		s, err := New(tt.f)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Event(&skip); got != tt.want {
			t.Errorf("%+v: selected %v, want %v", tt.f, got, tt.want)
		}
	}
}

// TestPod: a pod is chosen by one of its containers, types and sources don't
// count.
func TestPod(t *testing.T) {
	pod := pleg.Pod{
		Key: "u1", UID: "u1", Namespace: "shop", Name: "web-1", Labels: map[string]string{"app": "web"},
		Containers: []pleg.Container{{Name: "nginx"}, {Name: "log"}},
	}
	for _, tt := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true},
		{Filter{Containers: []string{"log"}}, true},
		{Filter{Containers: []string{"redis"}}, false},
		{Filter{Types: []string{"SandboxReady"}, Sources: []string{"relist"}}, true},
		{Filter{Namespaces: []string{"shop"}, Labels: "app=web"}, true},
		{Filter{Namespaces: []string{"shop"}, Labels: "app=db"}, false},
	} {
		s, err := New(tt.f)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Pod(&pod); got != tt.want {
			t.Errorf("%+v: selected %v, want %v", tt.f, got, tt.want)
		}
	}
}

// TestBadFilters: what is wrong is named, with what is allowed.
func TestBadFilters(t *testing.T) {
	for _, tt := range []struct {
		f    Filter
		want string
	}{
		{Filter{Types: []string{"ContainerExploded"}}, `type "ContainerExploded": must be one of SandboxCreated, `},
		{Filter{Sources: []string{"guess"}}, `source "guess": must be one of stream, relist, inspect`},
		{Filter{Namespaces: []string{""}}, `namespace "": must not be empty`},
		{Filter{Labels: " "}, `selector " ": must not be empty`},
		{Filter{Pods: []string{strings.Repeat("x", maxLength+1)}}, "must be at most 1024 bytes long"},
		{Filter{UIDs: make([]string, maxValues+1)}, "at most 1024 are allowed"},
		{Filter{Labels: "app in web"}, `: selector "app in web": `},
		{Filter{Labels: strings.Repeat("x", maxSelector+1)}, "must be at most 4096 bytes long"},
	} {
		_, err := New(tt.f)
		var key *KeyError
		if !errors.As(err, &key) || !errors.Is(err, ErrFilter) {
			t.Errorf("%+v: %v", tt.f, err)
			continue
		}
		if !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 600 {
			t.Errorf("got %q, want %q", err, tt.want)
		}
	}
}
