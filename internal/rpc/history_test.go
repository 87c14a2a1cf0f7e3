package rpc_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// Every position that was ever given out can be gone on from, after a clean stop
// and after a kill too, and brings what the journal has after it: in order, once.
func TestWatchFromEveryPosition(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	a := n.Start()
	first := a.Generator.Position()
	churn(t, n, 1, 60)
	a.Settle()
	given := a.Journal()
	a.Stop()
	churn(t, n, 2, 30)
	a = n.Start()
	churn(t, n, 3, 30)
	a.Settle()
	given = append(given, a.Journal()[len(given):]...)
	a.Kill()
	churn(t, n, 4, 30)
	a = n.Start()
	a.Settle()
	journal := a.Journal()
	if of(journal[:len(given)]) != of(given) {
		t.Fatal("the journal has not kept what was there before the stop and the kill")
	}
	if len(journal) < 150 {
		t.Fatalf("only %d events", len(journal))
	}
	c := api(t, n.Socket)
	end := a.Generator.Position().String()
	for i, from := range append([]pleg.Position{{Epoch: first.Epoch}}, positionsOf(journal)...) {
		g := once(t, c, after(from.String()))
		if positions(g.events) != of(journal[i:]) {
			t.Fatalf("after %s came\n%s\nwant\n%s", from, positions(g.events), of(journal[i:]))
		}
		if g.bookmarks[0] != from.String() || g.last() != end {
			t.Errorf("after %s: bookmarks %v, want that and last %s", from, g.bookmarks, end)
		}
	}
}

func positionsOf(journal []pleg.Event) []pleg.Position {
	var list []pleg.Position
	for _, ev := range journal {
		list = append(list, ev.Position)
	}
	return list
}

// A watch from a time on begins with the first event observed then or later.
func TestWatchFromATime(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	a := n.Start()
	churn(t, n, 1, 60)
	a.Settle()
	journal := a.Journal()
	c := api(t, n.Socket)
	for i, ev := range journal {
		for _, d := range []int64{0, 1} {
			from := slices.IndexFunc(journal, func(e pleg.Event) bool { return e.ObservedAt >= ev.ObservedAt+d })
			if from < 0 {
				from = len(journal)
			}
			g := once(t, c, &plegdv1.WatchRequest{From: &plegdv1.WatchRequest_Time{Time: timestamppb.New(time.Unix(0, ev.ObservedAt+d))}})
			if positions(g.events) != of(journal[from:]) {
				t.Fatalf("event %d, %d ns later: came\n%s\nwant\n%s", i, d, positions(g.events), of(journal[from:]))
			}
			// The first bookmark is where to go on from, were the stream to break.
			if again := once(t, c, after(g.bookmarks[0])); positions(again.events) != of(journal[from:]) {
				t.Fatalf("event %d: after the first bookmark came %s", i, positions(again.events))
			}
		}
	}
}

// A snapshot is the pods as of its position, and the events after it go on without
// gap or overlap, whatever happens meanwhile.
func TestWatchSnapshotAndTail(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	a := n.Start()
	c := api(t, n.Socket)
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		w, err := simruntime.NewWorkload(n.Runtime, simruntime.WorkloadConfig{Seed: 5, Pods: 8})
		for err == nil {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				_, err = w.Step()
			}
		}
		t.Error(err)
	})
	var snapshots []*got
	for len(snapshots) < 40 || len(a.Journal()) < 300 {
		g := once(t, c, &plegdv1.WatchRequest{From: &plegdv1.WatchRequest_Snapshot{Snapshot: &plegdv1.Snapshot{}}})
		if g.snapshots != 1 || len(g.bookmarks) != 1 || len(g.events) != 0 {
			t.Fatalf("a snapshot has %d ends, bookmarks %v, %d events", g.snapshots, g.bookmarks, len(g.events))
		}
		snapshots = append(snapshots, g)
		time.Sleep(5 * time.Millisecond)
	}
	close(stop)
	all.Wait()
	a.Settle()
	journal := a.Journal()
	for _, g := range snapshots {
		at := slices.IndexFunc(journal, func(ev pleg.Event) bool { return ev.Position.String() == g.last() }) + 1
		if at == 0 && !strings.HasSuffix(g.last(), "/0") {
			t.Fatalf("position %s of a snapshot is of no event", g.last())
		}
		if have, want := inSnapshot(g.pods), folded(journal[:at]); !maps.Equal(have, want) {
			t.Fatalf("the snapshot at %s has\n%v\nwhat was told up to it is\n%v", g.last(), have, want)
		}
		if tail := once(t, c, after(g.last())); positions(tail.events) != of(journal[at:]) {
			t.Fatalf("after %s came %s", g.last(), positions(tail.events))
		}
	}
}

// inSnapshot is the state of each sandbox and container.
func inSnapshot(pods []*plegdv1.Pod) map[string]string {
	states := map[string]string{}
	for _, p := range pods {
		for _, s := range p.Sandboxes {
			states[s.Id] = s.State
		}
		for _, c := range p.Containers {
			states[c.Id] = c.State
		}
	}
	return states
}

// folded is the state that events have told of each.
func folded(events []pleg.Event) map[string]string {
	states := map[string]string{}
	for _, ev := range events {
		id := ev.EntityID()
		switch ev.Type {
		case store.SandboxCreated, store.ContainerCreated:
			states[id] = "created"
		case store.SandboxReady:
			states[id] = "ready"
		case store.SandboxNotReady:
			states[id] = "notready"
		case store.ContainerStarted:
			states[id] = "running"
		case store.ContainerDied:
			states[id] = "exited"
		case store.SandboxRemoved, store.ContainerRemoved:
			delete(states, id)
		default:
		}
	}
	return states
}

// What a filter lets through is what going through the whole history by hand
// lets through.
func TestWatchFilters(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	a := n.Start()
	churn(t, n, 7, 150)
	a.Settle()
	journal := a.Journal()
	c := api(t, n.Socket)
	from := pleg.Position{Epoch: journal[0].Position.Epoch}.String()
	values := map[string][]string{}
	add := func(key, value string) {
		if value != "" && !slices.Contains(values[key], value) {
			values[key] = append(values[key], value)
		}
	}
	for _, ev := range journal {
		add("namespace", ev.Pod.Namespace)
		add("pod", ev.Pod.Name)
		add("uid", ev.Pod.UID)
		add("container", ev.Container.Name)
		add("type", string(ev.Type))
		add("source", ev.Source.String())
		add("app", ev.Pod.Labels["app"])
	}
	for _, key := range []string{"namespace", "pod", "uid", "container"} {
		add(key, "none-such")
	}
	passed := 0
	rapid.Check(t, func(rt *rapid.T) {
		pick := func(key string) []string {
			if rapid.IntRange(0, 2).Draw(rt, key+" asked") > 0 {
				return nil
			}
			return rapid.SliceOfNDistinct(rapid.SampledFrom(values[key]), 1, min(3, len(values[key])), rapid.ID).Draw(rt, key)
		}
		f := &plegdv1.Filter{
			Namespaces: pick("namespace"), Pods: pick("pod"), Uids: pick("uid"), Containers: pick("container"), Types: pick("type"), Sources: pick("source"),
		}
		apps := pick("app")
		if len(apps) > 0 {
			f.LabelSelector = fmt.Sprintf("app in (%s)", strings.Join(apps, ","))
		}
		var want []pleg.Event
		for _, ev := range journal {
			in := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
			if in(f.Namespaces, ev.Pod.Namespace) && in(f.Pods, ev.Pod.Name) && in(f.Uids, ev.Pod.UID) && in(f.Containers, ev.Container.Name) &&
				in(f.Types, string(ev.Type)) && in(f.Sources, ev.Source.String()) && in(apps, ev.Pod.Labels["app"]) {
				want = append(want, ev)
			}
		}
		passed += len(want)
		req := after(from)
		req.Filter = f
		g := once(t, c, req)
		if positions(g.events) != of(want) {
			rt.Fatalf("%v: came\n%s\nwant\n%s", f, positions(g.events), of(want))
		}
		if g.last() != a.Generator.Position().String() {
			rt.Fatalf("the last bookmark is %s, and all was read", g.last())
		}
	})
	if passed == 0 {
		t.Error("no filter let anything through")
	}
}

// Readers that come and go, at their own pace, each see the whole history.
func TestWatchReadersAtTheirOwnPace(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	a := n.Start()
	c := api(t, n.Socket)
	from := a.Generator.Position().String()
	done := make(chan struct{})
	seen := make([][]*plegdv1.Event, 6)
	var all sync.WaitGroup
	for i := range seen {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			at := from
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true // and what there is now is all
				case <-time.After(time.Duration(rng.IntN(20*(i+1))) * time.Millisecond):
				}
				g, err := read(t.Context(), c, &plegdv1.WatchRequest{From: &plegdv1.WatchRequest_Position{Position: at}, Once: true})
				if err != nil {
					t.Error(err)
					return
				}
				seen[i], at = append(seen[i], g.events...), g.last()
			}
		})
	}
	churn(t, n, 9, 120)
	a.Settle()
	close(done)
	all.Wait()
	journal := a.Journal()
	for i := range seen {
		if positions(seen[i]) != of(journal) {
			t.Errorf("reader %d has seen\n%s\nof\n%s", i, positions(seen[i]), of(journal))
		}
	}
}
