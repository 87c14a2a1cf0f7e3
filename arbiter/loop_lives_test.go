package arbiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// history is what readers were ever told, over all lives of the agent.
type history struct {
	told map[timestamps.Position]store.Event
}

// add takes what a reader was told. A position with two contents is the one
// thing that must never be (D2). How it was delivered is no content.
func (h *history) add(t interface{ Fatalf(string, ...any) }, events []store.Event) {
	if h.told == nil {
		h.told = map[timestamps.Position]store.Event{}
	}
	for _, ev := range events {
		ev.Volatile = false
		if old, ok := h.told[ev.Position]; ok {
			if diff := cmp.Diff(old, ev); diff != "" {
				t.Fatalf("D2: position %v has two contents (-first +second):\n%s", ev.Position, diff)
			}
		}
		h.told[ev.Position] = ev
	}
}

// reader is one subscriber over the lives of the agent: it reads, stops, comes
// back from where it was, and starts over when that has expired.
type reader struct {
	at  timestamps.Position
	sub *Subscription // nil: not subscribed
}

// lives is a run of the property: an agent that is killed, stopped and started
// over one store that fails in every way, and its readers.
type lives struct {
	t       *rapid.T
	m       *store.Memory
	d       *driven
	told    []timestamps.Position // by this life, in the order of publication
	order   map[timestamps.Position]int
	history history
	readers []reader
	alive   []string
	next    int
}

// TestD2NoPositionHasTwoContents: over random lives of the agent, killed at any
// point or ended cleanly, with commits that fail in every way before and after
// they are written, files that are copied, begun anew, or can be neither,
// readers are told one history: no position has two contents, none misses or
// repeats anything unless it is told so, and what the store has in the end is
// what the core has (D2, D3; F12, F13, F14).
func TestD2NoPositionHasTwoContents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Without Deadline, which panics in a bubble.
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) {
			keep := store.Retention{Entries: rapid.SampledFrom([]int{3, 50, 50_000}).Draw(t, "entries")}
			l := &lives{t: t, m: store.NewMemory(storetest.Runtime, keep), readers: make([]reader, 3)}
			for range rapid.IntRange(2, 5).Draw(t, "lives") {
				l.live()
			}
		})
	})
}

// failures are what a store may say that the loop goes on after.
var failures = []error{store.ErrFull, store.ErrIO, store.ErrReplaced, store.ErrDamaged, store.ErrUnwritable, errIO}

// fail draws how the store behaves from now on.
func (l *lives) fail(f *storetest.Faulty) {
	n := rapid.SampledFrom([]int{0, 0, 1, 2, 3, -1}).Draw(l.t, "failures")
	err := rapid.SampledFrom(failures).Draw(l.t, "error")
	f.FailBefore(0, nil)
	f.FailAfter(0, nil)
	if rapid.Bool().Draw(l.t, "after") {
		f.FailAfter(n, err)
	} else {
		f.FailBefore(n, err)
	}
	mend := func(name string) func(error) error {
		err := rapid.SampledFrom([]error{nil, store.ErrIO, store.ErrFull}).Draw(l.t, name)
		return func(error) error { return err }
	}
	f.OnRescue(mend("rescue"))
	f.OnRenew(mend("renew"))
}

func (l *lives) live() {
	l.m = l.m.Reopen()
	l.told, l.order = nil, map[timestamps.Position]int{}
	s := storetest.NewFaulty(l.m)
	if rapid.IntRange(0, 3).Draw(l.t, "fails at the start") == 0 {
		l.fail(s)
		s.FailBefore(rapid.SampledFrom([]int{1, -1}).Draw(l.t, "times"), store.ErrFull)
	}
	heard := new(watching)
	heard.heard = func(ev store.Event) {
		l.order[ev.Position] = len(l.told)
		l.told = append(l.told, ev.Position)
	}
	l.d = drive(l.t, s, func(c *Config) {
		c.CommitRate, c.Observer, c.Unwritten = 10_000, heard, rapid.SampledFrom([]int{3, 50, 50_000}).Draw(l.t, "unwritten")
	})
	l.d.faulty = s
	l.list()
	for range rapid.IntRange(0, 12).Draw(l.t, "steps") {
		l.step()
	}
	crash := rapid.Bool().Draw(l.t, "crash")
	if rapid.Bool().Draw(l.t, "mended") || !crash {
		l.mended()
	}
	for i := range l.readers {
		l.readers[i].sub = nil
	}
	if crash {
		l.d.faulty.FailBefore(-1, errCrash)
		l.d.cancel()
		_ = l.d.end()
	} else {
		l.d.stop()
		l.d.equalsStore(l.m)
	}
}

func (l *lives) step() {
	switch rapid.IntRange(0, 6).Draw(l.t, "step") {
	case 0:
		l.fail(l.d.faulty)
	case 1, 2:
		for range rapid.IntRange(1, 4).Draw(l.t, "events") {
			l.next++
			l.alive = append(l.alive, fmt.Sprint("s", l.next))
			l.d.tell(l.alive[len(l.alive)-1])
		}
	case 3: // one goes
		if len(l.alive) > 0 {
			i := rapid.IntRange(0, len(l.alive)-1).Draw(l.t, "gone")
			l.alive = slices.Delete(slices.Clone(l.alive), i, i+1)
			for range 3 {
				l.list()
				time.Sleep(2 * time.Second)
			}
		}
	case 4:
		time.Sleep(time.Duration(rapid.IntRange(1, 30_000).Draw(l.t, "ms")) * time.Millisecond)
	case 5:
		l.read(&l.readers[rapid.IntRange(0, len(l.readers)-1).Draw(l.t, "reader")])
	case 6: // a reader reconnects
		l.readers[rapid.IntRange(0, len(l.readers)-1).Draw(l.t, "reader")].sub = nil
	}
	synctest.Wait()
}

func (l *lives) list() {
	l.d.sync(items(l.alive)...)
	synctest.Wait()
}

// mended ends all faults. Then, without any new change, the store has it all.
func (l *lives) mended() {
	f := l.d.faulty
	f.FailBefore(0, nil)
	f.FailAfter(0, nil)
	f.OnRescue(nil)
	f.OnRenew(nil)
	l.list()
	time.Sleep(3 * retryMost)
	synctest.Wait()
	if h := l.d.Health(); h.StoreError != "" {
		l.t.Fatalf("the store works, health says %s", h.StoreError)
	}
	snap, err := l.m.Load()
	if err != nil {
		l.t.Fatal(err)
	}
	if len(snap.Records) != len(l.alive) {
		l.t.Fatalf("%d records are stored, %d sandboxes are there", len(snap.Records), len(l.alive))
	}
	if j, at := l.m.Journal(), l.d.Position(); j.Last > 0 && (timestamps.Position{Epoch: j.Epoch, Seq: j.Last}) != at && at.Seq != 0 {
		l.t.Fatalf("the journal ends at %d of %v, the feed at %v", j.Last, j.Epoch, at)
	}
	for i := range l.readers {
		r := &l.readers[i]
		l.read(r)
		l.read(r) // from the oldest position, if its own had expired
		if n := len(l.told); n > 0 && r.at != l.told[n-1] && r.at != l.d.Position() {
			l.t.Fatalf("a reader is at %v, the last event was %v", r.at, l.told[n-1])
		}
	}
}

// read reads all that a reader can have.
func (l *lives) read(r *reader) {
	now, cancel := context.WithCancel(context.Background())
	cancel() // nothing is waited for
	if r.sub == nil {
		from := &r.at
		if r.at.Epoch.IsZero() {
			from = nil
		}
		var err error
		if r.sub, err = l.d.Subscribe(from); err != nil {
			l.expired(r, err)
			return
		}
		r.at = r.sub.Position()
	}
	for {
		ev, err := r.sub.Next(now)
		if errors.Is(err, context.Canceled) {
			return
		}
		if err != nil {
			l.expired(r, err)
			return
		}
		l.follows(r, ev)
		l.history.add(l.t, []store.Event{*ev})
		r.at = ev.Position
	}
}

// expired starts a reader over, from the oldest position, which must do.
func (l *lives) expired(r *reader, err error) {
	var expired *ExpiredError
	if !errors.As(err, &expired) {
		l.t.Fatalf("a reader at %v gets %v, want an ExpiredError", r.at, err)
	}
	sub, err := l.d.Subscribe(&expired.Oldest)
	if err != nil {
		l.t.Fatalf("from the oldest position: %v", err)
	}
	*r = reader{at: expired.Oldest, sub: sub}
}

// follows checks that an event is the next one after what the reader had.
func (l *lives) follows(r *reader, ev *store.Event) {
	now, told := l.order[ev.Position]
	before, toldBefore := l.order[r.at]
	switch {
	case told && toldBefore:
		if now != before+1 {
			l.t.Fatalf("after %v comes %v, published were %v between", r.at, ev.Position, l.told[before+1:now])
		}
	case r.at.Epoch == ev.Position.Epoch && ev.Type == store.SequenceSkipped:
		if ev.From != r.at.Seq+1 || ev.To+1 != ev.Position.Seq {
			l.t.Fatalf("after %v comes a skip from %d to %d under %v", r.at, ev.From, ev.To, ev.Position)
		}
	case r.at.Epoch == ev.Position.Epoch:
		if ev.Position.Seq != r.at.Seq+1 {
			l.t.Fatalf("after %v comes %v", r.at, ev.Position)
		}
	case !told || now != 0 && l.told[now-1].Epoch == ev.Position.Epoch:
		l.t.Fatalf("after %v comes %v, which does not begin an epoch of this life", r.at, ev.Position)
	}
}
