package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/client"
	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/store"
)

// Readers of different speed see the whole history over clean stops and kills of
// the agent: in order, nothing twice, nothing left out.
func TestEventsOverRestarts(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.RPC.Stall = 200 * time.Millisecond // the slowest reader is cut too
	a := n.Start()
	var away notes
	c := dial(t, n.Socket, client.Options{
		Wait:         true, // a reader may begin after the first kill
		Disconnected: func(error) { away.add("away") }, Reconnected: func() { away.add("back") },
	})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	from := client.From{Position: a.Generator.Position().String()}
	readers := make([]notes, 4)
	var all sync.WaitGroup
	for i := range readers {
		all.Go(func() {
			for ev, err := range c.Events(ctx, from, nil) {
				switch {
				case errors.Is(err, context.Canceled) && ev == nil:
					return
				case err != nil:
					t.Errorf("reader %d: %v", i, err)
					return
				}
				readers[i].add(ev.Position)
				time.Sleep(time.Duration(i*i) * time.Millisecond)
			}
		})
	}
	load := churn(t, n, 8)
	for round := range 4 {
		load.steps(40)
		if round%2 == 0 {
			a.Kill()
		} else {
			a.Stop()
		}
		load.steps(10)
		a = n.Start()
	}
	load.steps(40)
	a.Settle()
	journal := of(a.Journal())
	for i := range readers {
		rpctest.WaitFor(t, fmt.Sprint("all events at reader ", i), func() bool { return len(readers[i].line()) >= len(journal) })
		if got := readers[i].line(); got != journal {
			t.Errorf("reader %d has\n%s\nof\n%s", i, got, journal)
		}
	}
	cancel()
	all.Wait()
	aways, backs := 0, 0
	for _, w := range away.all() {
		if w == "away" {
			aways++
		} else {
			backs++
		}
	}
	if aways == 0 || aways != backs {
		t.Errorf("told of %d disconnects and %d reconnects", aways, backs)
	}
}

// A reader that begins now, or at a time, resumes as exactly, even before its
// first event.
func TestEventsBeforeTheFirstOne(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Pod("old")
	a := n.Start()
	a.Settle()
	before := len(a.Journal())
	began, back := make(chan struct{}, 8), make(chan struct{}, 8)
	c := dial(t, n.Socket, client.Options{Reconnected: func() { back <- struct{}{} }})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var now, past notes
	var all sync.WaitGroup
	for to, from := range map[*notes]client.From{&now: {}, &past: {Time: time.Now()}} {
		all.Go(func() {
			for u, err := range c.Watch(ctx, client.WatchOptions{From: from}) {
				switch {
				case err != nil:
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				case u.Event != nil:
					to.add(u.Position)
				default:
					began <- struct{}{}
				}
			}
		})
	}
	<-began
	<-began
	a.Kill()
	n.Pod("new")
	a = n.Start()
	<-back
	<-back
	a.Settle()
	want := of(a.Journal()[before:])
	rpctest.WaitFor(t, "what happened meanwhile", func() bool { return now.line() == want && past.line() == want })
	cancel()
	all.Wait()
}

// Events that are no longer kept are an error that names what is left, or, if
// asked for, a new snapshot.
func TestExpired(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Config.Retention = store.Retention{Entries: 20}
	a := n.Start()
	c := dial(t, n.Socket, client.Options{})
	from := client.From{Position: a.Generator.Position().String()}
	load := churn(t, n, 8)
	load.steps(80)
	a.Settle()
	a.Stop()
	a = n.Start()
	a.Settle()

	var expired *client.ExpiredError
	for ev, err := range c.Events(within(t), from, nil) {
		if !errors.As(err, &expired) || !errors.Is(err, client.ErrExpired) || ev != nil {
			t.Fatalf("event %v, error %v", ev, err)
		}
	}
	if expired == nil || expired.Asked != from.Position || expired.Newest != a.Generator.Position().String() {
		t.Fatalf("expired: %+v", expired)
	}
	for u, err := range c.Watch(within(t), client.WatchOptions{From: client.From{Position: expired.Oldest}, Once: true}) {
		if err != nil {
			t.Fatalf("%+v: %v", u, err)
		}
	}

	updates := 0
	for u, err := range c.Watch(within(t), client.WatchOptions{From: from, StartOver: true, Once: true}) {
		updates++
		if err != nil || len(u.Pods) == 0 || u.Lost == nil || u.Lost.Asked != from.Position || u.Position != a.Generator.Position().String() {
			t.Errorf("update %v, error %v", u, err)
		}
	}
	if updates != 1 {
		t.Errorf("%d updates", updates)
	}
}

// A loop that takes longer for an event than an agent waits loses nothing, and
// nobody is told that the agent is away: it isn't.
func TestSlowLoop(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	log := &logtest.Buffer{}
	n.RPC.Stall, n.RPC.Logger = 300*time.Millisecond, log.Logger()
	a := n.Start()
	c := dial(t, n.Socket, client.Options{Disconnected: func(err error) { t.Errorf("disconnected: %v", err) }})
	from := client.From{Position: a.Generator.Position().String()}
	churnLarge(n, strings.Repeat("x", 4000), 60)
	a.Settle()
	var got notes
	for u, err := range c.Watch(within(t), client.WatchOptions{From: from, Once: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if u.Event == nil {
			continue
		}
		got.add(u.Position)
		if len(got.list)%80 == 5 { // twice: after four cuts the connection ends, and a busy machine may cause some
			time.Sleep(900 * time.Millisecond)
		}
	}
	if want := of(a.Journal()); got.line() != want {
		t.Errorf("got\n%s\nof\n%s", got.line(), want)
	}
	if log.Count("is cut") == 0 {
		t.Error("it was never cut")
	}
}

// What is wrong with what is asked for is an error at once, not something to try
// again.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Start()
	c := dial(t, n.Socket, client.Options{Wait: true, Disconnected: func(err error) { t.Errorf("disconnected: %v", err) }})
	for name, o := range map[string]client.WatchOptions{
		"position":  {From: client.From{Position: "x"}},
		"two ways":  {From: client.From{Position: "x", Snapshot: true}},
		"selector":  {Filter: &client.Filter{LabelSelector: "a in ("}},
		"keepalive": {Keepalive: time.Millisecond},
	} {
		pairs := 0
		for u, err := range c.Watch(within(t), o) {
			pairs++
			if u != nil || !errors.Is(err, client.ErrInvalid) {
				t.Errorf("%s: update %v, error %v", name, u, err)
			}
		}
		if pairs != 1 {
			t.Errorf("%s: %d pairs", name, pairs)
		}
	}
	for _, err := range c.Events(within(t), client.From{Snapshot: true}, nil) {
		if !errors.Is(err, client.ErrInvalid) {
			t.Errorf("a snapshot of events: %v", err)
		}
	}
}

// Leaving the loop ends the stream, and the client is as good as before.
func TestBreak(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	a := n.Start()
	c := dial(t, n.Socket, client.Options{})
	from := client.From{Position: a.Generator.Position().String()}
	n.Pod("web")
	for range 600 { // more than the agent serves at once
		for _, err := range c.Events(within(t), from, nil) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
}
