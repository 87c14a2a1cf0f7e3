package arbiter

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// mending is a loop whose store fails until it is rescued or renewed.
type mending struct {
	*driven
	m       *store.Memory
	tried   []store.Batch // since it fails
	rescues []time.Time
	renews  []time.Time
}

// breaks starts a loop with one sandbox told and lets every commit fail from
// then on. rescue and renew are what those answer; where that is nil they end
// the failures.
func breaks(t *testing.T, why, rescue, renew error) *mending {
	d := &mending{m: memory()}
	d.driven = drive(t, d.m)
	d.tell("s1")
	d.sync(ready("s1"))
	d.faulty.Hook(func(b *store.Batch) error {
		d.tried = append(d.tried, *b)
		return why
	})
	answer := func(times *[]time.Time, err error) func(error) error {
		return func(cause error) error {
			*times = append(*times, time.Now())
			if !errors.Is(cause, why) {
				t.Errorf("the cause is given as %v", cause)
			}
			if err == nil {
				d.faulty.Hook(nil)
			}
			return err
		}
	}
	d.faulty.OnRescue(answer(&d.rescues, rescue))
	d.faulty.OnRenew(answer(&d.renews, renew))
	return d
}

// TestD3RescuesAfterAnIOError: after an I/O error the same batch is tried once
// more in place and then in a copy, with the same numbers, and history goes on.
// A file that is gone is copied at once.
func TestD3RescuesAfterAnIOError(t *testing.T) {
	for why, inPlace := range map[error]int{store.ErrIO: 2, errIO: 2, store.ErrReplaced: 1} {
		t.Run(why.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := breaks(t, why, nil, nil)
				at := d.Position()
				d.tell("s2")
				synctest.Wait()
				if told := d.after(at); len(told) != 2 || volatile(told) != 2 {
					t.Errorf("told %+v", told)
				}
				d.works()
				if len(d.tried) != inPlace || len(d.rescues) != 1 || len(d.renews) != 0 {
					t.Errorf("%d tries in place, %d rescues, %d renewals", len(d.tried), len(d.rescues), len(d.renews))
				}
				for _, b := range d.tried {
					if diff := cmp.Diff(d.tried[0], b); diff != "" {
						t.Errorf("another batch was tried:\n%s", diff)
					}
				}
				d.forgetTail()
				if all := d.after(d.beginning()); len(all) != 4 || gapless(t, all) != 0 || volatile(all) != 0 || all[3].Position.Epoch != at.Epoch {
					t.Errorf("journal %+v", all)
				}
				d.stop()
				d.equalsStore(d.m)
			})
		})
	}
}

// TestD3RenewsWhatCanNotBeRescued: a file that is damaged, or can't be copied,
// is begun anew without a restart: all of the state is written again under a new
// epoch. The journal is lost; who reads on goes on in memory, and after a
// restart positions of the old epoch have expired.
func TestD3RenewsWhatCanNotBeRescued(t *testing.T) {
	for why, rescues := range map[error]int{store.ErrIO: 1, store.ErrReplaced: 1, store.ErrDamaged: 0} {
		t.Run(why.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := breaks(t, why, store.ErrIO, nil)
				old := d.Position()
				sub, err := d.Subscribe(&old)
				if err != nil {
					t.Fatal(err)
				}
				d.tell("s2")
				synctest.Wait()
				d.works()
				if len(d.rescues) != rescues || len(d.renews) != 1 {
					t.Errorf("%d rescues, %d renewals", len(d.rescues), len(d.renews))
				}
				if h := d.Health(); h.Resets != 1 || h.ResetReason == "" || h.ResetAt.IsZero() || d.log.Count("level=ERROR") != 1 {
					t.Errorf("health %+v, log %q", h, d.log.Lines())
				}
				d.tell("s3")
				synctest.Wait()
				now := d.Position()
				if now.Epoch == old.Epoch || now.Seq != 2 {
					t.Errorf("at %v, want number 2 after epoch %v", now, old.Epoch)
				}
				if told := d.readTo(sub, now); len(told) != 4 || told[1].Position.Epoch != old.Epoch || told[2].Position.Seq != 1 {
					t.Errorf("a reader got %+v", told)
				}
				d.stop()
				d.equalsStore(d.m)

				l := drive(t, d.m.Reopen())
				l.sync(ready("s1"), ready("s2"), ready("s3"))
				if l.Position() != now {
					t.Errorf("after a restart at %v, want nothing new after %v", l.Position(), now)
				}
				if _, err := l.Subscribe(&old); !errors.Is(err, store.ErrExpired) {
					t.Errorf("from %v: %v", old, err)
				}
				l.stop()
			})
		})
	}
}

// TestD3RenewsWhatFailsInTheCopyToo: a store that goes on failing in its copy is
// begun anew once, and not copied for ever. One that is replaced again is copied
// again, since nothing is known against the copy.
func TestD3RenewsWhatFailsInTheCopyToo(t *testing.T) {
	for why, want := range map[error]struct{ rescues, renews int }{
		store.ErrIO:       {3, 1}, // of which two are of an empty file
		errIO:             {3, 1},
		store.ErrReplaced: {3, 0},
	} {
		t.Run(why.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := breaks(t, why, nil, nil)
				at := d.Position()
				rescues, renews := 0, 0
				d.faulty.OnRescue(func(error) error {
					if rescues++; rescues == 3 {
						d.faulty.Hook(nil)
					}
					return nil
				})
				d.faulty.OnRenew(func(error) error {
					if renews++; rescues != 1 {
						t.Errorf("begun anew after %d rescues", rescues)
					}
					return nil
				})
				d.tell("s2")
				time.Sleep(time.Minute)
				d.works()
				if rescues != want.rescues || renews != want.renews {
					t.Errorf("%d rescues, %d renewals, want %+v", rescues, renews, want)
				}
				if kept := d.Position().Epoch == at.Epoch; kept != (want.renews == 0) {
					t.Errorf("at %v after %v", d.Position(), at)
				}
				d.stop()
				d.equalsStore(d.m)
			})
		})
	}
}

// TestD3RenewedTwiceWithNothingTold: who stands at the beginning of an epoch of
// which nothing was told yet goes on from there, however often the store is
// begun anew meanwhile.
func TestD3RenewedTwiceWithNothingTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := breaks(t, store.ErrDamaged, nil, nil)
		d.faulty.Hook(nil)
		again := func() {
			d.faulty.FailBefore(-1, store.ErrDamaged)
			d.faulty.OnRenew(func(error) error { d.faulty.FailBefore(0, nil); return nil })
			// It is written without an event.
			d.SubmitEvent(&EventSeen{At: d.moment(), Type: EventStopped, ID: time.Now().String(), CreatedAt: 1})
			time.Sleep(time.Minute)
			d.works()
		}
		old := d.Position()
		again()
		empty := d.Position()
		if empty.Epoch == old.Epoch || empty.Seq != 0 {
			t.Fatalf("at %v after %v, want an epoch with nothing told", empty, old)
		}
		again()
		again()
		if h := d.Health(); h.Resets != 3 {
			t.Fatalf("health %+v, want 3 resets", h)
		}
		d.tell("s2")
		synctest.Wait()
		for _, from := range []timestamps.Position{empty, old} {
			sub, err := d.Subscribe(&from)
			if err != nil {
				t.Fatalf("from %v: %v", from, err)
			}
			if got := d.readTo(sub, d.Position()); len(got) != 2 || got[0].Position.Seq != 1 {
				t.Errorf("after %v come %+v", from, got)
			}
		}
		d.stop()
		d.equalsStore(d.m)
	})
}

// TestD3MendingIsProgress: of all that mending does, only the step that it is at
// counts as silence of the loop.
func TestD3MendingIsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := breaks(t, store.ErrReplaced, nil, nil)
		slow := func(what string, err error) func(error) error {
			return func(error) error {
				if p := d.Health().Progress; p != 0 {
					t.Errorf("%s begins %v after the last progress", what, p)
				}
				time.Sleep(20 * time.Second)
				return err
			}
		}
		d.faulty.OnRescue(slow("the copy", store.ErrIO))
		renew := slow("the empty file", nil)
		d.faulty.OnRenew(func(cause error) error {
			d.faulty.Hook(func(*store.Batch) error {
				if p := d.Health().Progress; p != 0 {
					t.Errorf("a commit begins %v after the last progress", p)
				}
				return nil
			})
			return renew(cause)
		})
		d.faulty.Hook(func(*store.Batch) error {
			time.Sleep(20 * time.Second)
			return store.ErrReplaced
		})
		d.tell("s2")
		time.Sleep(2 * time.Minute)
		d.works()
		d.faulty.Hook(nil)
		if h := d.Health(); h.Resets != 1 {
			t.Errorf("health %+v", h)
		}
		d.stop()
		d.equalsStore(d.m)
	})
}

// TestD3MendsSeldom: a store that can't be mended is tried in place for ever
// and copied or begun anew no more than once in 10 s; health says why neither
// works. A full disk, and one that is mounted read-only, are only waited for.
func TestD3MendsSeldom(t *testing.T) {
	cases := []struct {
		why, rescue      error
		rescued, renewed bool
	}{
		{store.ErrIO, store.ErrIO, true, true},
		{store.ErrDamaged, store.ErrIO, false, true},
		{store.ErrIO, store.ErrFull, true, false},
		{store.ErrFull, nil, false, false},
		{store.ErrUnwritable, nil, false, false},
	}
	for _, c := range cases {
		t.Run(fmt.Sprint(c.why, ", ", c.rescue), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := breaks(t, c.why, c.rescue, store.ErrUnwritable)
				d.tell("s2")
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				for name, times := range map[string][]time.Time{"rescues": d.rescues, "renewals": d.renews} {
					for i := 1; i < len(times); i++ {
						if times[i].Sub(times[i-1]) < mendGap {
							t.Errorf("two %s within %v", name, times[i].Sub(times[i-1]))
						}
					}
				}
				if (len(d.rescues) > 9) != c.rescued || (len(d.renews) > 9) != c.renewed || len(d.tried) < 20 {
					t.Errorf("%d tries, %d rescues, %d renewals in 5 minutes", len(d.tried), len(d.rescues), len(d.renews))
				}
				if pods, _ := d.Pods(); len(pods) != 2 {
					t.Errorf("%d pods are shown", len(pods))
				}
				d.faulty.Hook(nil)
				d.works()
				if all := d.after(d.beginning()); len(all) != 4 || volatile(all) != 0 {
					t.Errorf("journal %+v", all)
				}
				d.stop()
				d.equalsStore(d.m)
			})
		})
	}
}

// TestD3EndsWhenAnotherProcessHasTheState: a state that another process has
// taken over is left to it.
func TestD3EndsWhenAnotherProcessHasTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := breaks(t, store.ErrReplaced, store.ErrLocked, nil)
		d.tell("s2")
		if err := d.end(); !errors.Is(err, store.ErrLocked) {
			t.Errorf("run: %v", err)
		}
		if len(d.renews) != 0 {
			t.Error("it was begun anew")
		}
	})
}

// TestMissingIsTheDifference: what a stored state lacks of the core's, and has
// too much, is found in every table, and nothing else.
func TestMissingIsTheDifference(t *testing.T) {
	c := NewCore(Limits{}, "boot")
	same, gone, kind := storetest.Sandbox("same", 1), storetest.Sandbox("gone", 1), storetest.Sandbox("kind", 1)
	c.Restore(&store.Snapshot{
		Records:    []*store.Record{same, storetest.Container("kind", "same", 1), storetest.Sandbox("new", 1)},
		Tombstones: []*store.Record{storetest.Sandbox("t-same", 1), storetest.Sandbox("t-new", 1)},
		Asks:       []*store.Ask{{ID: "a-same", Why: 1}, {ID: "a-changed", Why: 2}},
	})
	moved := *same
	moved.Known++ // evidence alone is nothing to write
	b := c.Missing(&store.Snapshot{
		Records:    []*store.Record{&moved, gone, kind},
		Tombstones: []*store.Record{storetest.Sandbox("t-same", 1), storetest.Sandbox("t-gone", 1)},
		Asks:       []*store.Ask{{ID: "a-same", Why: 1}, {ID: "a-changed", Why: 1}, {ID: "a-gone", Why: 1}},
	})
	var got []string
	for _, r := range b.Records {
		got = append(got, "put "+r.ID)
	}
	for _, k := range b.Gone {
		got = append(got, fmt.Sprintf("delete %s of kind %d", k.ID, k.Kind))
	}
	for _, r := range b.Tombstones {
		got = append(got, "put "+r.ID)
	}
	for _, a := range b.Asks {
		got = append(got, fmt.Sprintf("put %s for %d", a.ID, a.Why))
	}
	for _, id := range append(b.Forgotten, b.Answered...) {
		got = append(got, "delete "+id)
	}
	want := []string{
		"put kind", "put new", fmt.Sprintf("delete gone of kind %d", store.KindSandbox), fmt.Sprintf("delete kind of kind %d", store.KindSandbox),
		"put t-new", "put a-changed for 2", "delete t-gone", "delete a-gone",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(b.Events) != 0 || b.Meta.Epoch != (timestamps.Epoch{}) {
		t.Errorf("batch %+v", b)
	}
}

// TestD3KilledOnceItWasBegunAnew: what a store begins anew with is the whole
// state, so that a kill right after it makes nobody told anything again.
func TestD3KilledOnceItWasBegunAnew(t *testing.T) {
	eachPlace(t, store.Retention{}, func(t *testing.T, p place) {
		d := drive(t, p.open(t))
		d.tell("a", "b")
		d.sync(ready("a"), ready("b"))
		old := d.Position()
		d.faulty.OnRenew(func(error) error { d.faulty.FailBefore(-1, store.ErrFull); return nil })
		d.faulty.FailBefore(-1, store.ErrDamaged)
		d.tell("c")
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, renewed := d.faulty.Rescues(); renewed == 1 && d.Position().Epoch != old.Epoch {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("never begun anew")
			}
		}
		d.crash()
		d = drive(t, p.open(t))
		d.sync(ready("a"), ready("b"), ready("c"))
		for _, ev := range d.after(d.beginning()) {
			if ev.Type != store.SequenceSkipped {
				t.Errorf("told again: %+v", ev)
			}
		}
		if _, err := d.Subscribe(&old); !errors.Is(err, store.ErrExpired) {
			t.Errorf("a position of the epoch that was lost: %v", err)
		}
		d.stop()
	})
}
