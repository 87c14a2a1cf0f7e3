package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/plegd/plegd/client"
	"github.com/plegd/plegd/store"
)

// waitSeen is what `plegd wait` knows of its target: the states of the sandboxes
// or of the attempts of the container, by the snapshot and the events after it.
// An event that the snapshot has already changes nothing.
type waitSeen struct {
	target waitTarget
	state  string                // that is waited for
	things map[string]*waitThing // by id
	n      int                   // things so far
	said   string                // the last line
	any    bool                  // something of the agent was seen
}

// waitThing is one sandbox, or one attempt of a container.
type waitThing struct {
	n     int    // a later one has a higher number
	state string // "" of a container where a pod is waited for: it only counts as being there
	exit  string // how it exited, "" if that isn't known
}

// thing returns the one with an id, which may be new.
func (s *waitSeen) thing(id string) *waitThing {
	t := s.things[id]
	if t == nil {
		s.n++
		t = &waitThing{n: s.n}
		s.things[id] = t
	}
	return t
}

func newWaitSeen(target waitTarget, state string) *waitSeen {
	return &waitSeen{target: target, state: state, things: map[string]*waitThing{}}
}

// begin forgets what was and begins with a snapshot.
func (s *waitSeen) begin(pods []*client.Pod) {
	s.any = true
	clear(s.things)
	for _, p := range pods {
		ofPod := s.target.container == ""
		for _, b := range p.GetSandboxes() {
			if ofPod {
				s.thing(b.GetId()).state = b.GetState()
			}
		}
		for _, c := range p.GetContainers() { // ordered by name, then attempt
			switch {
			case ofPod:
				s.thing(c.GetId())
			case c.GetName() == s.target.container:
				t := s.thing(c.GetId())
				t.state = c.GetState()
				t.exited(c.ExitCode, c.GetReason())
			}
		}
	}
}

// exited takes in how a container exited, if that is known.
func (t *waitThing) exited(code *int32, reason string) {
	if code != nil {
		t.exit = strings.TrimSpace(fmt.Sprintf("exit code %d %s", *code, reason))
	}
}

// waitStates are the states that events tell of.
var waitStates = map[store.EventType]string{
	store.SandboxCreated: stateCreated, store.SandboxReady: stateReady, store.SandboxNotReady: stateNotReady,
	store.ContainerCreated: stateCreated, store.ContainerStarted: stateRunning, store.ContainerDied: stateExited,
}

// note takes an event in.
func (s *waitSeen) note(ev *client.Event) {
	id, ofContainer := ev.GetSandboxId(), ev.GetContainer().GetId() != ""
	if ofContainer {
		id = ev.GetContainer().GetId()
	}
	kind := store.EventType(ev.GetType())
	state := waitStates[kind]
	switch {
	case kind == store.SandboxRemoved || kind == store.ContainerRemoved:
		delete(s.things, id)
		return
	case store.Change(ev.GetChange()) == store.ChangeRegressed:
		state = ev.GetState()
	case state == "": // it changes no state
		if t := s.things[id]; t != nil {
			t.exited(ev.ExitCode, ev.GetReason())
		}
		return
	}
	t := s.thing(id)
	if !ofContainer || s.target.container != "" {
		t.state, t.exit = state, ""
		t.exited(ev.ExitCode, ev.GetReason())
	}
}

// is is the one that stands for all: the liveliest, and of these the latest. nil
// if there is none.
func (s *waitSeen) is() *waitThing {
	// What is created may become ready or running: it isn't over.
	order := []string{"", stateExited, stateNotReady, stateCreated, stateRunning, stateReady}
	var best *waitThing
	for _, t := range s.things {
		if best == nil || cmp.Or(cmp.Compare(slices.Index(order, t.state), slices.Index(order, best.state)), cmp.Compare(t.n, best.n)) > 0 {
			best = t
		}
	}
	return best
}

// reached reports whether what is waited for is so.
func (s *waitSeen) reached() bool {
	t := s.is()
	switch {
	case t == nil:
		return s.state == stateRemoved
	case s.state == stateCreated:
		return t.state != ""
	}
	return t.state == s.state
}

// word says how it is.
func (s *waitSeen) word() string {
	t := s.is()
	switch {
	case t == nil && s.n == 0:
		return "does not exist"
	case t == nil:
		return "is removed"
	case t.state == "":
		return "has no sandbox"
	case t.exit != "":
		return "is " + t.state + ", " + t.exit
	}
	return "is " + t.state
}

// line says how it is, and whether that is another thing than before.
func (s *waitSeen) line() (line string, changed bool) {
	line = fmt.Sprintf("%s %s %s", s.target.kind(), s.target.text, s.word())
	changed = line != s.said
	s.said = line
	return line, changed
}

// last says what was seen last, for who has waited in vain.
func (s *waitSeen) last() string {
	if !s.any {
		return "nothing is known of it since no agent has answered"
	}
	return "it " + s.word()
}
