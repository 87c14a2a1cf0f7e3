package sim_test

import (
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// said is one thing that an answer or an event said about an entity to the
// agent. What the history contradicts is a lie: of an answer what was true at no
// moment after the call's sending and until its end, of an event what never was true
// until it came.
type said struct {
	life  *life
	sent  time.Time // of the call; of an event zero
	at    time.Time // when all of it had come
	by    source
	claim string // a state by its CRI name, gone, or an event's type
	lie   bool
}

// call says whether an answer to a call said it.
func (s said) call() bool { return !s.sent.IsZero() }

// ledger is all that was said to the agent, by entity and in order.
type ledger struct {
	mu sync.Mutex
	of map[string][]said
}

// hear notes what an answer or an event says about an entity, and returns whether
// it is true.
func (s *sight) hear(id, claim string, by source, sent time.Time) (isTrue bool) {
	if id == "" || s.l.dead.Load() {
		return false
	}
	x := said{life: s.l, sent: sent, at: time.Now(), by: by, claim: claim}
	if x.call() { // not of the same instant: the call may have been sent after what came in it
		sent = sent.Add(1)
	}
	x.lie = !s.w.past.was(id, claim, sent, x.at)
	s.note(id, x)
	return !x.lie
}

func (s *sight) note(id string, x said) {
	if x.lie {
		s.w.count("wrong to the agent: "+x.claim+" by a "+string(x.by), 1)
	}
	l := &s.w.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[string][]said{}
	}
	l.of[id] = append(l.of[id], x)
}

// lacks notes what a complete list lacks of all that it should have.
func (s *sight) lacks(ids []string, has map[string]bool, sent, answered time.Time) {
	for _, id := range ids {
		if !has[id] {
			x := said{life: s.l, sent: sent, at: time.Now(), by: byList, claim: gone}
			x.lie = !s.w.past.was(id, gone, sent, answered)
			s.note(id, x)
		}
	}
}

// about returns what was said of an entity from one time to another, both
// included.
func (l *ledger) about(id string, from, to time.Time) []said {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.of[id]
	i, _ := slices.BinarySearchFunc(all, from, func(x said, t time.Time) int { return x.at.Compare(t) })
	j := i
	for j < len(all) && !all[j].at.After(to) {
		j++
	}
	return all[i:j]
}

// lied says whether a lie of a kind was told of an entity in a time.
func (l *ledger) lied(id string, from, to time.Time, is func(said) bool) bool {
	return slices.ContainsFunc(l.about(id, from, to), func(x said) bool { return x.lie && is(x) })
}

// liedSince says whether a lie was told of anything since a time.
func (l *ledger) liedSince(from time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, all := range l.of {
		if slices.ContainsFunc(all, func(x said) bool { return x.lie && !x.at.Before(from) }) {
			return true
		}
	}
	return false
}

// alive says whether something was said that shows that it has not ended.
func alive(x said) bool { return places[x.claim] == 1 || places[x.claim] == 2 }

// down says whether something was said that shows its end.
func down(x said) bool { return places[x.claim] == 3 }

// unclear says whether something was said that says nothing.
func unclear(x said) bool {
	return x.claim == runtimeapi.ContainerState_CONTAINER_UNKNOWN.String()
}
