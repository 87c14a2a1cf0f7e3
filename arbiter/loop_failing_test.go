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
				// Health tells of the trouble, and who shows it logs it.
				if lines := d.log.Lines(); len(lines) != d.log.Count("the state goes on in a copy") || len(lines) > 1 {
					t.Errorf("log %q", lines)
				}
				if h := d.Health(); h.StoreError != "" || !h.StoreSince.IsZero() {
					t.Errorf("health %+v when it works again", h)
				}
				d.stop()
			})
		})
	}
}

// TestD3TriesAtLeastEvery10s: the tries are spaced from a tenth of a second to
// 10 s, and never further (D2, D3).
func TestD3TriesAtLeastEvery10s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync()
		var tries []time.Time
		d.faulty.Hook(func(*store.Batch) error {
			tries = append(tries, time.Now())
			return store.ErrFull
		})
		d.tell("s1")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if len(tries) < 60 {
			t.Fatalf("%d tries in 10 minutes", len(tries))
		}
		if first := tries[1].Sub(tries[0]); first != retryFirst {
			t.Errorf("the first after %v", first)
		}
		for i := range tries[1:] {
			if gap := tries[i+1].Sub(tries[i]); gap > 10*time.Second {
				t.Errorf("try %d came %v after the one before", i+2, gap)
			}
		}
		d.faulty.Hook(nil)
		d.works()
		d.stop()
	})
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
		d.works()
		d.forgetTail()
		if d.Position().Seq != 600 {
			t.Errorf("position %v, want 600", d.Position())
		}
		events := d.after(d.Oldest())
		if len(events) != 10 || gapless(t, events) != 0 || events[9].Position.Seq != 600 {
			t.Errorf("journal %+v", events)
		}
		d.stop()
	})
}

// TestLoopMayNotWriteAtTheStart: a state that may not be written when the run
// begins ends it, with nothing told.
func TestLoopMayNotWriteAtTheStart(t *testing.T) {
	for _, why := range []error{store.ErrUnwritable, store.ErrClosed} {
		s := storetest.NewFaulty(memory())
		s.FailBefore(-1, why)
		d := drive(t, s)
		if err := d.end(); !errors.Is(err, why) || !strings.Contains(err.Error(), "first write") {
			t.Errorf("run: %v", err)
		}
		if err := d.WaitFresh(t.Context(), 0); !errors.Is(err, ErrStopped) {
			t.Errorf("readers get %v", err)
		}
	}
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
