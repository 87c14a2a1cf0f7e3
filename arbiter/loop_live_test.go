package arbiter

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// liveRead is one event as a live reader got it.
type liveRead struct {
	event store.Event
	live  bool
}

// readLive takes n events.
func (d *driven) readLive(sub *LiveSubscription, n int) (got []liveRead) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for range n {
		ev, live, err := sub.Next(ctx)
		if err != nil {
			d.t.Fatalf("after %d events: %v", len(got), err)
		}
		if live != (ev.Position == timestamps.Position{}) {
			d.t.Fatalf("live %v, under %v", live, ev.Position)
		}
		got = append(got, liveRead{*ev, live})
	}
	return got
}

// bare leaves out what an event gets with its commit.
func bare(events []store.Event) []store.Event {
	out := make([]store.Event, len(events))
	for i, ev := range events {
		ev.Position, ev.Volatile = timestamps.Position{}, false
		out[i] = ev
	}
	return out
}

func eventsOf(reads []liveRead) []store.Event {
	events := make([]store.Event, len(reads))
	for i, r := range reads {
		events[i] = r.event
	}
	return events
}

// TestLoopLiveDoesNotWaitForTheDisk: a live reader has an event while its commit
// hangs, other readers only after it. Once written it is the same event.
func TestLoopLiveDoesNotWaitForTheDisk(t *testing.T) {
	d := drive(t, memory())
	d.sync()
	live, err := d.SubscribeLive(nil)
	if err != nil {
		t.Fatal(err)
	}
	before := d.Position()
	durable, err := d.Subscribe(&before)
	if err != nil {
		t.Fatal(err)
	}
	release := d.faulty.Hold()
	d.tell("a")
	got := d.readLive(live, 2)
	if !got[0].live || !got[1].live {
		t.Errorf("got %+v, want live events", got)
	}
	if d.Position() != before || live.Position() != before {
		t.Errorf("at %v, the live reader at %v, before the commit; want %v", d.Position(), live.Position(), before)
	}
	release()
	d.sync(ready("a"))
	if diff := cmp.Diff(eventsOf(got), bare(d.rest(durable))); diff != "" {
		t.Errorf("live and written differ:\n%s", diff)
	}
	// It has all that is written now: with the next event it can go on from there.
	written := d.Position()
	d.tell("b")
	d.readLive(live, 1)
	if at := live.Position(); at.Seq < written.Seq { // beyond, if the next was written meanwhile
		t.Errorf("resumes from %v, want %v", at, written)
	}
	d.stop()
}

// TestLoopLiveHasEachEventOnce: over the change from what is told to what is
// live, whatever waits at that moment, and with a disk that fails.
func TestLoopLiveHasEachEventOnce(t *testing.T) {
	d := drive(t, memory())
	d.sync()
	var all []string
	var subs []*LiveSubscription
	for round := range 24 {
		ids := names(string(rune('a'+round)), 7)
		var release func()
		switch round % 4 {
		case 1:
			release = d.faulty.Hold()
		case 3:
			d.faulty.FailBefore(2, errors.New("input/output error"))
		}
		d.tell(ids...)
		from := d.beginning()
		sub, err := d.SubscribeLive(&from)
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
		d.readLive(sub, 1)
		if release != nil {
			release()
		}
		all = append(all, ids...)
		d.sync(items(all)...)
	}
	d.works()
	want := bare(d.after(d.beginning()))
	if len(want) != 2*len(all) {
		t.Fatalf("%d events, want %d", len(want), 2*len(all))
	}
	for i, sub := range subs {
		if diff := cmp.Diff(want[1:], bare(eventsOf(d.readLive(sub, len(want)-1)))); diff != "" {
			t.Fatalf("reader %d:\n%s", i, diff)
		}
	}
	d.stop()
	for _, sub := range subs {
		if _, _, err := sub.Next(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
	}
}

// TestLoopLiveReaderFallsBehind: what is kept for live readers is bounded. Who is
// further behind goes on with what was told, as any reader, and is live again
// once it has that.
func TestLoopLiveReaderFallsBehind(t *testing.T) {
	d := drive(t, memory())
	d.sync()
	from := d.beginning()
	slow, err := d.SubscribeLive(&from)
	if err != nil {
		t.Fatal(err)
	}
	d.tell("first")
	got := eventsOf(d.readLive(slow, 2))
	all := d.many("first")
	d.live.mu.Lock()
	if n := len(d.live.events); n > 3*liveSize {
		t.Errorf("%d events are kept", n)
	}
	d.live.mu.Unlock()
	reads := d.readLive(slow, 2*len(all)-2)
	if reads[0].live {
		t.Error("what was told long ago came live")
	}
	got = append(got, eventsOf(reads)...)
	if diff := cmp.Diff(bare(d.after(d.beginning())), bare(got)); diff != "" {
		t.Error(diff)
	}
	release := d.faulty.Hold()
	d.tell("last")
	if reads := d.readLive(slow, 2); !reads[0].live || !reads[1].live {
		t.Error("not live again")
	}
	release()
	d.stop()
}

// TestLoopLiveReaderIsCut: where memory has nothing of what comes next the reader
// is told so, and loses nothing by subscribing again.
func TestLoopLiveReaderIsCut(t *testing.T) {
	d := drive(t, memory())
	d.sync()
	from := d.beginning()
	slow, err := d.SubscribeLive(&from)
	if err != nil {
		t.Fatal(err)
	}
	release := d.faulty.Hold()
	d.tell("first")
	got := eventsOf(d.readLive(slow, 2)) // live, for sure
	release()
	d.many("first")
	at := slow.Position()
	d.forgetTail()
	slow.buf = nil
	if _, _, err := slow.Next(t.Context()); !errors.Is(err, ErrBehind) {
		t.Fatalf("got %v", err)
	}
	again, err := d.SubscribeLive(&at)
	if err != nil {
		t.Fatal(err)
	}
	want := d.after(d.beginning())
	rest := d.after(at)
	got = append(got[:len(want)-len(rest)], eventsOf(d.readLive(again, len(rest)))...)
	if diff := cmp.Diff(bare(want), bare(got)); diff != "" {
		t.Error(diff)
	}
	d.stop()
}

// many tells of more sandboxes than are kept for live readers.
func (d *driven) many(first string) (all []string) {
	d.t.Helper()
	all = []string{first}
	for round := range 5 {
		ids := names(string(rune('a'+round)), 250)
		d.tell(ids...)
		all = append(all, ids...)
		d.sync(items(all)...)
	}
	return all
}

// TestLoopLiveAfterACrash: an event that came live and was never written is found
// out again; its reader goes on from its position as if nothing had happened.
func TestLoopLiveAfterACrash(t *testing.T) {
	eachPlace(t, store.Retention{}, func(t *testing.T, p place) {
		d := drive(t, p.open(t))
		d.sync()
		d.tell("a")
		d.sync(ready("a"))
		live, err := d.SubscribeLive(nil)
		if err != nil {
			t.Fatal(err)
		}
		at := d.Position()
		d.faulty.FailBefore(-1, store.ErrIO)
		d.tell("b")
		got := bare(eventsOf(d.readLive(live, 2)))
		if live.Position() != at {
			t.Errorf("resumes from %v, want %v", live.Position(), at)
		}
		d.crash()
		d = drive(t, p.open(t))
		again, err := d.SubscribeLive(&at)
		if err != nil {
			t.Fatal(err)
		}
		d.sync(ready("a"), ready("b"))
		reads := eventsOf(d.readLive(again, 3))
		if reads[0].Type != store.SequenceSkipped {
			t.Errorf("got %+v, want the skip first", reads[0])
		}
		for i, ev := range reads[1:] {
			if ev.Type != got[i].Type || ev.EntityID() != got[i].EntityID() {
				t.Errorf("got %s of %s, it was %s of %s", ev.Type, ev.EntityID(), got[i].Type, got[i].EntityID())
			}
		}
		d.stop()
	})
}
