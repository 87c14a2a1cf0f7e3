package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// scale chooses between what make test does and what make e2e-long does.
func scale(short, long int) int {
	if os.Getenv("PLEGD_E2E_LONG") == "1" {
		return long
	}
	return short
}

// samples are points in the life of one agent after the other: how many relists had succeeded when.
// They prove that an agent can have seen something, whatever the speed of the machine.
type samples struct {
	mu     sync.Mutex
	points []sample
}

type sample struct {
	at      time.Time
	agent   int // which one
	relists float64
}

func (s *samples) add(p sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.points = append(s.points, p)
}

// follow samples an agent until stop is called. The agent may die meanwhile.
func (s *samples) follow(a *agent, started time.Time) (stop func()) {
	s.mu.Lock()
	n := 0
	if len(s.points) > 0 {
		n = s.points[len(s.points)-1].agent + 1
	}
	s.mu.Unlock()
	// The first relist comes after the start, so it counts as one that began after it.
	s.add(sample{at: started, agent: n, relists: -1})
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(100 * time.Millisecond):
			}
			series, err := a.scrape()
			if err != nil {
				continue
			}
			// The value held at some moment of the call: no claim is made that needs to know which, as
			// covers allows for a sample more.
			s.add(sample{at: time.Now(), agent: n, relists: series[`plegd_relists_total{result="success"}`]})
		}
	}()
	return func() { close(quit); <-done }
}

// covers says whether some agent has relisted between the two times for sure: of two relists that
// ended in between, the second also began there; a third and one more sample make up for what was
// not yet committed or read when it was sampled. A zero end is no end.
func (s *samples) covers(from, to time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := map[int]float64{}
	for _, p := range s.points {
		if p.at.Before(from) || !to.IsZero() && p.at.After(to) {
			continue
		}
		if least, ok := first[p.agent]; !ok {
			first[p.agent] = p.relists
		} else if p.relists-least >= 3 {
			return true
		}
	}
	return false
}

// checkOnce checks that nothing is told twice or out of order, whatever happened: each rung of each
// sandbox and container once, upwards, in its first life.
func checkOnce(t *testing.T, events []event) {
	t.Helper()
	type rung struct {
		id    string
		event string
	}
	told := map[rung]event{}
	reached := map[string]int{}
	for _, e := range events {
		if e.Change == "regressed" || e.Incarnation > 1 {
			t.Errorf("%v lowers a state, in incarnation %d", e, e.Incarnation)
		}
		if e.Change != "" || e.Type == "SequenceSkipped" {
			continue
		}
		if before, twice := told[rung{e.id(), e.Type}]; twice {
			t.Errorf("told twice: %v, %v", before, e)
		}
		told[rung{e.id(), e.Type}] = e
		order := strings.Fields(wholeSandbox)
		if e.Container != nil {
			order = strings.Fields(wholeContainer)
		}
		n := slices.Index(order, strings.TrimPrefix(strings.TrimPrefix(e.Type, "Container"), "Sandbox"))
		if last, ok := reached[e.id()]; ok && n <= last {
			t.Errorf("out of order: %v", e)
		}
		reached[e.id()] = n
	}
}

// tally counts what came of a ledger.
type tally struct{ lives, whole, unseen, uncoded int }

func (y tally) String() string {
	return fmt.Sprintf("%d lives: %d told whole, %d that no agent can have seen, %d deaths without their code", y.lives, y.whole, y.unseen, y.uncoded)
}

// checkLedger compares what was told with what was done. What an agent has relisted must be told
// from its creation to its end, with its code if also the end was relisted. What no agent has seen
// may be missing, since a runtime keeps nothing of what is gone, but is never told wrongly.
func checkLedger(t *testing.T, events []event, lives []life, seen *samples) tally {
	t.Helper()
	y := tally{lives: len(lives)}
	byID := map[string][]event{}
	for _, e := range events {
		byID[e.id()] = append(byID[e.id()], e)
	}
	for _, l := range lives {
		mine := byID[l.id]
		whole, coded, err := checkLife(l, mine, seen)
		if err != nil {
			t.Errorf("%v\n  life %+v\n%s", err, l, dump(mine))
		}
		switch {
		case whole:
			y.whole++
		case len(mine) == 0:
			y.unseen++
		}
		if !coded {
			y.uncoded++
		}
	}
	return y
}

func checkLife(l life, mine []event, seen *samples) (whole, coded bool, err error) {
	got := trace(slices.DeleteFunc(slices.Clone(mine), func(e event) bool { return e.Change != "" }), l.id)
	rungs := strings.Fields(wholeSandbox)
	if l.container {
		rungs = strings.Fields(wholeContainer)
	}
	// What the ledger knows has happened at least. What ends by itself, and what a call did that failed
	// all the same, may have gone further without the ledger's knowing.
	least, most := 2, 3
	switch {
	case !l.gone.IsZero():
		least, most = 4, 4
	case !l.leaving.IsZero():
		least, most = 3, 4
	case !l.ended.IsZero():
		least = 3
	}
	for n := least; n <= most; n++ {
		whole = whole || got == strings.Join(rungs[:n], " ")
	}
	removed := strings.HasSuffix(got, "Removed")
	switch {
	case whole:
	case seen.covers(l.born, l.leaving):
		return false, true, fmt.Errorf("%s was seen, its life is told as %q", l.id, got)
	case got == "":
		return false, true, nil
	case !strings.HasPrefix(got, "Created") || least == 4 && !removed || most == 3 && removed:
		return false, true, fmt.Errorf("%s has a beginning or an end too many or too few: %q", l.id, got)
	}
	for _, e := range mine {
		if e.Pod.UID != l.uid || e.Container != nil && e.Container.Attempt != l.attempt {
			return whole, true, fmt.Errorf("%v: pod %s, container %+v", e, e.Pod.UID, e.Container)
		}
	}
	if l.container && !l.ended.IsZero() {
		coded, err = checkCode(l, mine, seen)
		return whole, coded, err
	}
	return whole, true, nil
}

// checkCode checks the exit code that was told last.
func checkCode(l life, mine []event, seen *samples) (coded bool, err error) {
	last := "untold"
	for _, e := range mine {
		if e.ExitCode.present {
			last = e.ExitCode.String()
		}
	}
	switch last {
	case fmt.Sprint(l.code):
		return true, nil
	case "untold", "null":
		if seen.covers(l.ended, l.leaving) {
			return false, fmt.Errorf("%s was seen ended with code %d, told is %s", l.id, l.code, last)
		}
		return false, nil
	}
	return false, errors.New(l.id + " ended with another code than told: " + last)
}

// awaitTold waits until all events were printed that the agent has published.
func (a *agent) awaitTold(t testing.TB) []event {
	t.Helper()
	want := a.position(t)
	return a.await(t, settle, "all events are printed", func(events []event) error {
		if len(events) == 0 || events[len(events)-1].Seq < want {
			return fmt.Errorf("%d events, up to %d expected", len(events), want)
		}
		return nil
	})
}
