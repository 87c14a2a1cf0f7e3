package generic

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// told makes an event of the journal about a container.
func told(typ store.EventType, id string) *store.Event {
	return &store.Event{Type: typ, SandboxID: "sb", Container: store.EventContainer{ID: id}}
}

// While the period is long, a container that was created and doesn't start is asked about
// after one, two, four and eight base periods, and many of them cost a list; one that
// starts, ends or goes is not asked about.
func TestUnstartedContainersAreAskedAbout(t *testing.T) {
	const base, longest = time.Second, time.Minute
	created := func(g *Relister, n int, apart time.Duration) {
		for i := range n {
			g.Told(told(store.ContainerCreated, fmt.Sprint("c", i)))
			time.Sleep(apart)
		}
	}
	for _, tc := range []struct {
		name   string
		events func(g *Relister)
		short  bool // the period is
		mode   func(*Config)
		want   []string // what was asked after the period was long, and when, as strings are sorted
	}{
		{name: "nothing happens", events: func(*Relister) {}},
		{name: "never started", events: func(g *Relister) { created(g, 1, 0) }, want: []string{"1s c0", "2s c0", "4s c0", "8s c0"}},
		{name: "told twice", events: func(g *Relister) { created(g, 1, 0); created(g, 1, 0) }, want: []string{"1s c0", "2s c0", "4s c0", "8s c0"}},
		{name: "started in time", events: func(g *Relister) {
			created(g, 1, base/2)
			g.Told(told(store.ContainerStarted, "c0"))
		}},
		{name: "dead after the second look", events: func(g *Relister) {
			created(g, 1, 3*base)
			g.Told(told(store.ContainerDied, "c0"))
		}, want: []string{"1s c0", "2s c0"}},
		{name: "removed", events: func(g *Relister) {
			created(g, 1, 0)
			g.Told(told(store.ContainerRemoved, "c0"))
		}},
		{name: "some, one soon after the other", events: func(g *Relister) { created(g, 2, base/10) },
			want: []string{"1.5s c1", "1s c0", "2.5s c1", "2s c0", "4.5s c1", "4s c0", "8.5s c1", "8s c0"}},
		{name: "many: one, and a list for the others", events: func(g *Relister) { created(g, 50, time.Millisecond) },
			want: []string{"1.5s list", "1s c0", "2.5s list", "4.5s list", "4s c0", "8.5s list", "8s c0"}},
		{name: "the period is short", events: func(g *Relister) { created(g, 1, 0) }, short: true},
		{name: "no periodic lists at all", events: func(g *Relister) { created(g, 1, 0) }, mode: func(c *Config) { c.NoPeriod = true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := Config{Runtime: onePod(), Base: base, Max: longest, Random: func() float64 { return 0 }}
				if tc.mode != nil {
					tc.mode(&cfg)
				}
				g := start(t, cfg)
				synctest.Wait()
				g.StreamChanged(true)
				if !tc.short {
					g.stretch()
				}
				synctest.Wait()
				before := len(got[*arbiter.ListSeen](g.sink))
				began := time.Now()
				after := func(sent timestamps.Stamp) string {
					return time.Unix(0, sent.Wall).Sub(began).Round(base / 10).String()
				}
				tc.events(g.Relister)
				time.Sleep(30*time.Second - time.Since(began))
				var asked []string
				for _, in := range g.sink.since(0) {
					if s, ok := in.(*arbiter.StatusSeen); ok {
						asked = append(asked, after(s.Call.Sent)+" "+s.ID)
					}
				}
				if !tc.short {
					for _, l := range got[*arbiter.ListSeen](g.sink)[before:] {
						asked = append(asked, after(l.SandboxCall.Sent)+" list")
					}
				}
				slices.Sort(asked)
				if diff := cmp.Diff(tc.want, asked); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// What is many grows with the node: on one of 4,800 sandboxes sixty containers a second
// cost no list. Where they do, lists are a base period apart.
func TestListsForUnstartedContainersAreWorthIt(t *testing.T) {
	const base = time.Second
	for _, tc := range []struct {
		name       string
		node       int // sandboxes in a list
		perSecond  int // containers that are created and don't start, for 20 s
		lists      bool
		everyAsked int // status calls at least
	}{
		{name: "a small node", node: 10, perSecond: 60, lists: true},
		{name: "a large node", node: 16 * 300, perSecond: 60, everyAsked: 20 * 60},
		{name: "too many for a large node", node: 16 * 300, perSecond: 1200, lists: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := onePod()
				rt.sandboxes = func(context.Context, *runtimeapi.PodSandboxFilter) (all []*runtimeapi.PodSandbox, _ error) {
					for i := range tc.node {
						all = append(all, &runtimeapi.PodSandbox{Id: fmt.Sprint("sb", i), Metadata: &runtimeapi.PodSandboxMetadata{Uid: fmt.Sprint("u", i)}})
					}
					return all, nil
				}
				g := start(t, Config{Runtime: rt, Base: base, Max: time.Minute, Random: func() float64 { return 0 }})
				synctest.Wait()
				g.StreamChanged(true)
				g.stretch()
				synctest.Wait()
				before := len(got[*arbiter.ListSeen](g.sink))
				for i := range 20 * tc.perSecond {
					ev := told(store.ContainerCreated, fmt.Sprint("c", i))
					ev.SandboxID = fmt.Sprint("sb", i%tc.node)
					g.Told(ev)
					time.Sleep(time.Second / time.Duration(tc.perSecond))
				}
				lists := got[*arbiter.ListSeen](g.sink)[before:]
				if some := len(lists) > 0; some != tc.lists {
					t.Errorf("%d lists", len(lists))
				}
				for i := 1; i < len(lists); i++ {
					if apart := lists[i].SandboxCall.Sent.Wall - lists[i-1].SandboxCall.Sent.Wall; apart < int64(base) {
						t.Errorf("lists %v apart", time.Duration(apart))
					}
				}
				time.Sleep(10 * time.Second)
				asked := map[string]bool{}
				for _, in := range g.sink.since(0) {
					if s, ok := in.(*arbiter.StatusSeen); ok {
						asked[s.ID] = true
					}
				}
				if len(asked) < tc.everyAsked {
					t.Errorf("%d of %d were asked about", len(asked), tc.everyAsked)
				}
			})
		})
	}
}
