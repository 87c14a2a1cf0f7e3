package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/client"
)

// waitSeen is what `plegd wait` has seen of its target.
type waitSeen struct {
	target waitTarget
	state  string     // that is waited for
	now    *waitThing // what stands for all sandboxes, or attempts of the container; nil if there is none
	known  bool       // the agent has said what there is
	was    bool       // there was something
	said   string     // the last line
}

// waitThing is one sandbox, or one attempt of a container.
type waitThing struct {
	state   string // "" of a container where a pod is waited for: it only counts as being there
	exit    string // how it exited, "" if that isn't known
	created time.Time
	attempt uint32
}

// look takes in what there is now.
func (s *waitSeen) look(pods []*client.Pod) {
	s.known, s.now = true, nil
	for _, p := range pods {
		if s.target.container == "" {
			for _, b := range p.GetSandboxes() {
				s.consider(waitThing{state: b.GetState()})
			}
		}
		for _, c := range p.GetContainers() {
			switch {
			case s.target.container == "":
				s.consider(waitThing{})
			case c.GetName() == s.target.container:
				t := waitThing{state: c.GetState(), created: moment(c.GetCreatedAt()), attempt: c.GetAttempt()}
				if c.ExitCode != nil {
					t.exit = strings.TrimSpace(fmt.Sprintf("exit code %d %s", c.GetExitCode(), c.GetReason()))
				}
				s.consider(t)
			}
		}
	}
}

// consider has one stand for all if it is the liveliest, and of these the latest.
func (s *waitSeen) consider(t waitThing) {
	// What is created may become ready or running: it isn't over.
	order := []string{"", stateExited, stateNotReady, stateCreated, stateRunning, stateReady}
	if s.now == nil || cmp.Or(cmp.Compare(slices.Index(order, t.state), slices.Index(order, s.now.state)),
		t.created.Compare(s.now.created), cmp.Compare(t.attempt, s.now.attempt)) >= 0 {
		s.now, s.was = &t, true
	}
}

// reached reports whether what is waited for is so.
func (s *waitSeen) reached() bool {
	switch {
	case s.now == nil:
		return s.state == stateRemoved
	case s.state == stateCreated:
		return s.now.state != ""
	}
	return s.now.state == s.state
}

// word says how it is.
func (s *waitSeen) word() string {
	t := s.now
	switch {
	case t == nil && !s.was:
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

// last says what was seen last, for who has waited in vain; err may say why nothing
// newer is known.
func (s *waitSeen) last(err error) string {
	why := ""
	if unmet, ok := errors.AsType[*client.UnmetError](err); ok && !nobodyAnswers(unmet.Why) {
		why = ": " + unmet.Why.Error()
	}
	switch {
	case !s.known && why == "":
		return "nothing is known of it since no agent has answered"
	case !s.known:
		return "nothing is known of it" + why
	case why != "":
		return "it " + s.word() + ", as far as is known" + why
	}
	return "it " + s.word()
}
