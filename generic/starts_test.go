package generic

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

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
			want: []string{"1.5s list", "1s c0", "2.5s list", "2s c0", "4.5s list", "4s c0", "8.5s list", "8s c0"}},
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
