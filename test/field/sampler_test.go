package field_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	pleg "github.com/plegd/plegd"
)

// samples is what a reader has seen that looks at the cache all the time.
type samples struct {
	mu    sync.Mutex
	life  int
	count int
	last  map[string]view   // of the newest sample
	lives map[string]uint32 // incarnations in it
	seen  map[string][]view // distinct views of each entity, in order
	gone  []string          // entities that were shown and then were not
	wrong []string          // breaches of G3
	flips []flip
}

// flip is a change of readiness.
type flip struct {
	life   int
	ready  bool
	reason string
	after  time.Duration // since the life's beginning
}

func (s *samples) init() { s.seen = map[string][]view{} }

// begin is a new life of the agent. What it shows at first may be less than
// what the last one did, if the state is lost.
func (s *samples) begin(life int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life, s.last, s.lives = life, nil, nil
}

// sample looks until its context ends. It takes a tenth of a processor at most.
func (f *field) sample(ctx context.Context, g *pleg.Generator) {
	began := time.Now()
	ready := false
	for ctx.Err() == nil {
		start := time.Now()
		pods, _ := g.Pods()
		f.samples.take(pods)
		if h := g.Health(); h.Ready != ready {
			ready = h.Ready
			f.samples.flip(flip{ready: ready, reason: health(h), after: time.Since(began)})
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(3*time.Millisecond, 10*time.Since(start))):
		}
	}
}

func (s *samples) flip(x flip) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.life = s.life
	s.flips = append(s.flips, x)
}

func (s *samples) take(pods []pleg.Pod) {
	now, lives := cached(pods), map[string]uint32{}
	for _, p := range pods {
		for _, c := range p.Containers {
			lives[c.ID] = c.Incarnation
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	for id, was := range s.last {
		is, ok := now[id]
		switch {
		case !ok:
			s.gone = append(s.gone, id)
		case lives[id] != s.lives[id]:
		case was.Exit != "" && (is.Exit != was.Exit || is.Finished != was.Finished):
			s.wrong = append(s.wrong, fmt.Sprintf("%s: exit %s at %d became %q at %d", short(id), was.Exit, was.Finished, is.Exit, is.Finished))
		case was.Started != 0 && is.Started == 0:
			s.wrong = append(s.wrong, fmt.Sprintf("%s: its start was known and is not any more", short(id)))
		case was.IPs != "" && is.IPs == "":
			s.wrong = append(s.wrong, fmt.Sprintf("%s: its addresses %s were known and are not any more", short(id), was.IPs))
		}
	}
	for id, is := range now {
		if all := s.seen[id]; len(all) == 0 || all[len(all)-1] != is {
			s.seen[id] = append(all, is)
		}
	}
	s.last, s.lives = now, lives
}

// views returns the distinct views of an entity that readers had, in order.
func (f *field) views(id string) []view {
	f.samples.mu.Lock()
	defer f.samples.mu.Unlock()
	return append([]view(nil), f.samples.seen[id]...)
}

// everShown says whether readers ever saw an entity so.
func (f *field) everShown(id string, so func(view) bool) bool {
	for _, v := range f.views(id) {
		if so(v) {
			return true
		}
	}
	return false
}

// flips returns the changes of readiness.
func (f *field) flips() []flip {
	f.samples.mu.Lock()
	defer f.samples.mu.Unlock()
	return append([]flip(nil), f.samples.flips...)
}

// neverUnready checks that the agent, once ready, stayed so in every life.
func (f *field) neverUnready() {
	f.t.Helper()
	for _, x := range f.flips() {
		if !x.ready {
			f.t.Errorf("not ready after %v: %s", x.after, x.reason)
		}
	}
}
