package storetest

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

func testEvents(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	all := append(Events(1, 5, 1), Skip(6, 4096, 2))
	all = append(all, Events(4098, 3, 2)...)
	x.commit(&store.Batch{Meta: Meta(Epoch, 2), Events: all[:3]})
	x.commit(&store.Batch{Meta: Meta(Epoch, 2), Events: all[3:]})
	for range 2 {
		x.journal(1, 4100, 9)
		for _, after := range []uint64{0, 1, 4, 5, 6, 7, 2000, 4095, 4096, 4097, 4098, 4099, 4100, 4101, 1 << 60} {
			var want []store.Event
			for _, e := range all {
				if e.Position.Seq > after {
					want = append(want, e)
				}
			}
			got, err := x.s.Events(after, 100)
			if err != nil {
				t.Fatalf("Events(%d): %v", after, err)
			}
			x.same("events", want, got)
		}
		x.reopen()
	}
}

func testEventsLimits(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	x.commit(&store.Batch{Meta: Meta(Epoch, 2), Events: Events(1, 10, 1)})
	for limit, want := range map[int]int{-1: 0, 0: 0, 1: 1, 7: 7, 100: 8} {
		if got, err := x.s.Events(2, limit); err != nil || len(got) != want {
			t.Errorf("Events(2, %d): got %d events and error %v, want %d", limit, len(got), err, want)
		}
	}
	// A reader gets about 1 MiB at a time, and at least one entry.
	var big []store.Event
	for i := range 10 {
		e := Event(uint64(11+i), 1)
		e.Reason = strings.Repeat("r", 300<<10*(1+i/9*5)) // the last one alone is above 1 MiB
		big = append(big, e)
	}
	x.commit(&store.Batch{Meta: Meta(Epoch, 2), Events: big})
	if got, err := x.s.Events(10, 100); err != nil || len(got) != 3 {
		t.Errorf("got %d events of 300 KiB and error %v, want 3", len(got), err)
	}
	x.same("events", append(Events(1, 10, 1), big...), x.events(0))
}

func testEventsExpired(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{Entries: 4})
	x.commit(&store.Batch{Meta: Meta(Epoch, 1), Events: Events(1, 4, 1)})
	x.commit(&store.Batch{Meta: Meta(Epoch, 1), Events: Events(5, 2, 1)})
	for range 2 {
		x.journal(3, 6, 4)
		x.expired(0)
		x.expired(1)
		x.same("events at the edge", Events(3, 4, 1), x.events(2))
		x.reopen()
	}
	// The numbers that a stored skip covers hold nothing: who stood among them
	// has missed nothing.
	x.commit(&store.Batch{Meta: Meta(Epoch, 1), Events: append([]store.Event{Skip(7, 99, 1)}, Events(101, 3, 1)...)})
	x.journal(100, 103, 4)
	x.expired(5)
	for _, after := range []uint64{6, 7, 50, 99} {
		if got := x.events(after); len(got) != 4 {
			t.Errorf("got %d events after %d, want the skip and 3 more", len(got), after)
		}
	}
	// Once the skip itself is dropped, so is the proof.
	x.commit(&store.Batch{Meta: Meta(Epoch, 1), Events: Events(104, 1, 1)})
	x.expired(50)
	x.same("events", Events(101, 4, 1), x.events(100))
	// A hole that nothing explains is a loss, and is told as one.
	x.commit(&store.Batch{Meta: Meta(Epoch, 1), Events: Events(110, 1, 1)})
	got, err := x.s.Events(102, 10)
	if err != nil {
		t.Fatal(err)
	}
	x.same("events up to the hole", Events(103, 2, 1), got)
	x.expired(104)
	x.expired(108)
	x.same("events behind the hole", Events(110, 1, 1), x.events(109))
	// So is what a skip does not reach up to.
	short := Skip(111, 115, 1)
	short.Position.Seq = 120
	x.commit(&store.Batch{Meta: Meta(Epoch, 1), Events: []store.Event{short}})
	x.expired(110)
	x.expired(115)
}

func testNewEpoch(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{})
	x.commit(&store.Batch{Meta: Meta(Epoch, 1), Records: []*store.Record{Sandbox("s1", 1)}, Events: Events(1, 500, 1)})
	next := timestamps.Epoch{1, 2, 3}
	event := Event(1, 2) // the same number as in the old epoch
	event.Position.Epoch = next
	b := &store.Batch{Meta: Meta(next, 2), Events: []store.Event{event}}
	for range 2 { // a retry changes nothing here either
		x.commit(b)
		x.journal(1, 1, 1)
		x.same("events", []store.Event{event}, x.events(0))
		x.same("records", []*store.Record{Sandbox("s1", 1)}, x.load().Records)
		if got := x.s.Journal().Epoch; got != next {
			t.Errorf("journal is of epoch %s, want %s", got, next)
		}
		x.reopen()
	}
	x.commit(&store.Batch{Meta: Meta(Epoch, 3)})
	x.journal(0, 0, 0)
}

func testRetentionEntries(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{Entries: 10})
	for i := range 50 {
		x.commit(&store.Batch{Meta: Meta(Epoch, 1), Events: Events(uint64(1+3*i), 3, 1)})
		if j := x.s.Journal(); j.Entries > 10 || (i > 5 && j.Entries != 10) {
			t.Fatalf("after %d events the journal is %+v", 3*i+3, j)
		}
	}
	x.reopen()
	x.journal(141, 150, 10)
}

func testRetentionAge(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{Age: 100})
	x.commit(&store.Batch{Meta: Meta(Epoch, 1000), Events: append(Events(1, 2, 1000), Events(3, 2, 1050)...)})
	x.commit(&store.Batch{Meta: Meta(Epoch, 1100)})
	x.journal(1, 4, 4) // exactly as old as allowed
	x.reopen()
	x.commit(&store.Batch{Meta: Meta(Epoch, 1101)})
	x.journal(3, 4, 2)
	// The newest entry stays, however old: it knows how far the numbers are.
	x.commit(&store.Batch{Meta: Meta(Epoch, 5000)})
	x.journal(4, 4, 1)
	x.expired(2)
	x.same("events", []store.Event(nil), x.events(4))
}

func testRetentionBytes(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{Bytes: 10_000})
	for i := range 100 {
		x.commit(&store.Batch{Meta: Meta(Epoch, 1), Events: Events(uint64(1+i), 1, 1)})
		if j := x.s.Journal(); j.Bytes > 10_000 {
			t.Fatalf("journal is %+v", j)
		}
	}
	j := x.s.Journal()
	if j.Bytes < 9_000 || j.Entries < 10 {
		t.Errorf("journal is %+v, want it nearly full", j)
	}
	x.reopen()
	x.same("journal after reopening", j, x.s.Journal())
	huge := Event(101, 1)
	huge.Reason = strings.Repeat("r", 20_000)
	x.commit(&store.Batch{Meta: Meta(Epoch, 1), Events: []store.Event{huge}})
	x.journal(101, 101, 1)
}

func testRetentionAmortised(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{Age: 100})
	for i := range 20 {
		x.commit(&store.Batch{Meta: Meta(Epoch, 1), Events: Events(uint64(1+100*i), 100, 1)})
	}
	x.journal(1, 2000, 2000)
	commits, last := 0, 2000
	for last > 1 {
		x.commit(&store.Batch{Meta: Meta(Epoch, 1000)})
		left := x.s.Journal().Entries
		if dropped := last - left; dropped < 1 || dropped > 500 {
			t.Fatalf("one commit of nothing dropped %d of %d entries", dropped, last)
		}
		last = left
		commits++
	}
	t.Logf("2000 old entries took %d commits to drop", commits)
	x.journal(2000, 2000, 1)
}

func testReaders(t *testing.T, backend Backend) {
	x := start(t, backend, store.Retention{Entries: 200})
	const batches, size = 60, 7
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			after := uint64(0)
			for after < batches*size {
				if j := x.s.Journal(); j.Last%size != 0 {
					t.Errorf("journal shows half a commit: %+v", j)
				}
				got, err := x.s.Events(after, 1000)
				if errors.Is(err, store.ErrExpired) { // the writer was faster than this reader
					after = x.s.Journal().Last
					continue
				}
				if err != nil {
					t.Errorf("Events(%d): %v", after, err)
					return
				}
				if len(got)%size != 0 {
					t.Errorf("Events(%d): %d events show half a commit", after, len(got))
				}
				for _, e := range got {
					if after++; e.Position.Seq != after {
						t.Errorf("got event %d, want %d", e.Position.Seq, after)
						return
					}
				}
			}
		})
	}
	for i := range batches {
		x.commit(&store.Batch{Meta: Meta(Epoch, int64(i)), Records: []*store.Record{Sandbox("s1", i)}, Events: Events(uint64(1+size*i), size, int64(i))})
	}
	wg.Wait()
}
