package arbiter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

var errIO = errors.New("input/output error")

// TestLoopRetriesTheSameBatch: a commit that failed, written or not, is tried
// again with the same numbers and the same content until it works, and readers
// see it once (D3).
func TestLoopRetriesTheSameBatch(t *testing.T) {
	failures := map[string]func(f *storetest.Faulty, n int){
		"before it was written": func(f *storetest.Faulty, n int) { f.FailBefore(n, errIO) },
		"after it was written":  func(f *storetest.Faulty, n int) { f.FailAfter(n, errIO) },
		"disk full":             func(f *storetest.Faulty, n int) { f.FailBefore(n, fmt.Errorf("write: %w", store.ErrFull)) },
	}
	for name, fail := range failures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := storetest.NewFaulty(memory())
				var tried []store.Batch
				d := drive(t, s)
				d.sync()
				s.Hook(func(b *store.Batch) error { tried = append(tried, *b); return nil })
				fail(s, 5)
				d.tell("s1")
				synctest.Wait()
				if h := d.Health(); h.StoreError == "" || h.StoreSince.IsZero() {
					t.Errorf("health %+v says nothing of the store", h)
				}
				d.tell("s2") // comes meanwhile: its own numbers, later
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(d.after(d.beginning())) != 4 {
					t.Fatalf("journal %+v", d.after(d.beginning()))
				}
				for i, b := range tried[:len(tried)-1] {
					if diff := cmp.Diff(tried[0], b); diff != "" {
						t.Errorf("try %d differs from the first:\n%s", i+1, diff)
					}
				}
				if lines := d.log.Lines(); len(lines) != 0 {
					t.Errorf("health tells of the trouble, and who shows it logs it; here too: %q", lines)
				}
				if h := d.Health(); h.StoreError != "" || !h.StoreSince.IsZero() {
					t.Errorf("health %+v when it works again", h)
				}
				d.stop()
			})
		})
	}
}

// TestLoopRetriesAcrossRetention: a batch larger than what the retention keeps
// is written once even if its first outcome was unknown.
func TestLoopRetriesAcrossRetention(t *testing.T) {
	eachPlace(t, store.Retention{Entries: 10}, func(t *testing.T, p place) {
		d := drive(t, p.open(t))
		d.sync()
		d.faulty.FailAfter(2, errIO)
		ids := names("s", 300)
		d.tell(ids...)
		d.sync(items(ids)...)
		if d.Position().Seq != 600 {
			t.Errorf("position %v, want 600", d.Position())
		}
		events := d.after(d.Oldest())
		if gapless(t, events) != 0 || events[len(events)-1].Position.Seq != 600 {
			t.Errorf("journal %+v", events)
		}
		d.stop()
	})
}

// TestLoopFailsAtTheFirstReservation: no event may be told before a number is
// durable, so a store that can't take the first reservation ends the run.
func TestLoopFailsAtTheFirstReservation(t *testing.T) {
	m := memory()
	s := storetest.NewFaulty(m)
	s.FailBefore(1, store.ErrFull)
	d := drive(t, s)
	if err := d.end(); !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "first write") {
		t.Errorf("run: %v", err)
	}
	if err := d.WaitFresh(t.Context(), 0); !errors.Is(err, ErrStopped) {
		t.Errorf("readers get %v", err)
	}
	// One whose outcome is unknown costs a block and nothing else.
	s = storetest.NewFaulty(m)
	s.FailAfter(1, errIO)
	if err := drive(t, s).end(); !errors.Is(err, errIO) {
		t.Errorf("run: %v", err)
	}
	d = drive(t, m.Reopen())
	d.tell("s1")
	d.sync(ready("s1"))
	if events := d.after(d.beginning()); gapless(t, events) != 1 || events[0].From != 1 {
		t.Errorf("journal %+v", events)
	}
	d.stop()
}

// TestLoopHoldsABoundedNumber: while the store fails, no more is held than
// so many events and what the queue may hold, no processor time is used,
// and all of it is written afterwards (D2).
func TestLoopHoldsABoundedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queue, unwritten = 100, 2000
		d := drive(t, memory(), func(c *Config) { c.Queue, c.unwritten = queue, unwritten; c.Limits.TombstoneAge = int64(time.Minute) })
		d.sync(ready("gone"))
		for range 3 { // leaves a tombstone, so that the core wants to be woken
			d.sync()
			time.Sleep(2 * time.Second)
		}
		before := d.Position().Seq
		d.faulty.FailBefore(-1, store.ErrFull)
		ids := names("s", unwritten)
		told := 0
		for _, id := range ids {
			if !d.SubmitEvent(d.up(id)) {
				d.Submit(&StreamOverflow{At: d.moment(), Lost: 1})
				break
			}
			if told++; told%queue == 0 {
				synctest.Wait()
			}
		}
		if told < unwritten/2 || told > unwritten/2+2*queue {
			t.Errorf("%d events of two entries each were taken, want about %d", told, unwritten/2)
		}
		steps, all := d.seen.stepCount(), items(ids[:told])
		for range 600 {
			time.Sleep(time.Second)
			d.list(all...)
			d.Submit(&ListFailed{At: d.moment(), Err: "x"})
			d.Submit(&StreamOverflow{At: d.moment(), Lost: 1})
			d.Submit(&Requested{At: d.moment(), PodKey: "uid-s00001"})
			if d.SubmitEvent(d.up("more")) {
				t.Fatal("room for more, though nothing was written")
			}
		}
		if n := d.seen.stepCount() - steps; n > 0 {
			t.Errorf("%d steps while full", n)
		}
		d.inbox.mu.Lock()
		n := len(d.inbox.items)
		d.inbox.mu.Unlock()
		if n > queue+10 {
			t.Errorf("%d inputs wait", n)
		}
		if n := d.calls.InFlight(); n > 4 {
			t.Errorf("%d calls count as in flight, those of two lists are", n)
		}
		d.faulty.FailBefore(0, nil)
		time.Sleep(time.Minute)
		d.sync(all...)
		if n := int(d.Position().Seq - before); n != 2*told {
			t.Errorf("%d entries were written, want %d", n, 2*told)
		}
		d.stop()
	})
}

// TestLoopTellsFreshnessRightAfterRecovery: a list that found nothing new while
// a batch was stuck is known to be applied as soon as that is written.
func TestLoopTellsFreshnessRightAfterRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync()
		d.faulty.FailAfter(1, errIO)
		d.tell("s1")
		synctest.Wait()
		began := time.Now()
		d.sync(ready("s1"))
		if took := time.Since(began); took > 2*retryFirst {
			t.Errorf("it took %v", took)
		}
		d.stop()
	})
}

// TestLoopDoesNotSpinWhenFull: a loop that can take no more sleeps until the
// next try, even when the core's wake-up time has passed.
func TestLoopDoesNotSpinWhenFull(t *testing.T) {
	d := drive(t, memory())
	d.cancel()
	_ = d.end()
	d.pending.events = make([]store.Event, maxUnwritten)
	d.wakeAt = 1
	d.retry.at = int64(d.cfg.Clock.Mono() + 50*time.Millisecond)
	began := time.Now()
	d.wait(t.Context())
	if time.Since(began) < 20*time.Millisecond {
		t.Error("the loop did not sleep until its next try")
	}
}

// TestLoopRemembersOneFreshnessWhileFailing: what is to be said once the
// records are written does not grow with the relists that go on meanwhile.
func TestLoopRemembersOneFreshnessWhileFailing(t *testing.T) {
	var p pending
	for i := range 1000 {
		p.add(&Output{
			Fresh:     []Fresh{{Sent: 1 + 2*tick(i)}, {PodKey: "u", Sent: 2 + 2*tick(i)}},
			Confirmed: []store.Key{{Kind: store.KindSandbox, ID: "s"}},
			Faults:    []Fault{{Key: store.Key{Kind: store.KindSandbox, ID: "s"}, Err: fmt.Sprint(i)}},
		})
	}
	e := p.effects
	if len(e.fresh) != 2 || e.fresh[""] != 1999 || e.fresh["u"] != 2000 || len(e.confirmed) != 1 || e.faults["s"] != "999" {
		t.Errorf("effects %+v", e)
	}
}

// TestLoopForgetsTheFaultOfWhatIsGone: an inspection that failed and a removal
// in one batch leave no fault behind.
func TestLoopForgetsTheFaultOfWhatIsGone(t *testing.T) {
	v := newView(&store.Snapshot{}, storetest.Event(1, 1).Position)
	var p pending
	p.add(&Output{Changes: store.Batch{Records: []*store.Record{storetest.Sandbox("s", 1)}}})
	for _, part := range p.split() {
		v.apply(&part, func([]store.Event) timestamps.Position { return v.position })
	}
	p.add(&Output{Faults: []Fault{{Key: store.Key{Kind: store.KindSandbox, ID: "s"}, Err: "x"}}})
	p.add(&Output{Changes: store.Batch{Gone: []store.Key{{Kind: store.KindSandbox, ID: "s"}}}})
	for _, part := range p.split() {
		v.apply(&part, func([]store.Event) timestamps.Position { return v.position })
	}
	if len(v.faults) != 0 {
		t.Errorf("faults %v of nothing", v.faults)
	}
}
