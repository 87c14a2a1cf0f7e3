package storetest

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/plegd/plegd/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newFaulty() *Faulty { return NewFaulty(store.NewMemory(Runtime, store.Retention{})) }

func batch(n int) *store.Batch {
	return &store.Batch{Meta: Meta(Epoch, int64(n)), Records: []*store.Record{Sandbox("s1", n)}, Events: Events(uint64(1+2*n), 2, int64(n))}
}

// stored returns the number of the batch that the store holds, -1 for none.
func stored(t *testing.T, f *Faulty) int {
	t.Helper()
	s, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Records) == 0 {
		return -1
	}
	return int(s.Meta.Running)
}

func TestFaultyFailsBefore(t *testing.T) {
	f := newFaulty()
	f.FailBefore(2, store.ErrFull)
	for range 2 {
		if err := f.Commit(batch(0)); !errors.Is(err, store.ErrFull) {
			t.Errorf("got error %v", err)
		}
		if got := stored(t, f); got != -1 {
			t.Errorf("batch %d was written", got)
		}
	}
	if err := f.Commit(batch(0)); err != nil || stored(t, f) != 0 {
		t.Errorf("the third commit: %v", err)
	}
	f.FailBefore(-1, store.ErrIO)
	for range 5 {
		if err := f.Commit(batch(1)); !errors.Is(err, store.ErrIO) {
			t.Errorf("got error %v", err)
		}
	}
	f.FailBefore(0, nil)
	if err := f.Commit(batch(1)); err != nil {
		t.Error(err)
	}
	if ok, bad := f.Commits(); ok != 2 || bad != 7 {
		t.Errorf("counted %d and %d", ok, bad)
	}
}

// What was written by a commit that failed is there after a restart, but no
// reader sees it before a commit succeeds.
func TestFaultyFailsAfter(t *testing.T) {
	f := newFaulty()
	if err := f.Commit(batch(0)); err != nil {
		t.Fatal(err)
	}
	f.FailAfter(1, store.ErrIO)
	if err := f.Commit(batch(1)); !errors.Is(err, store.ErrIO) || stored(t, f) != 1 {
		t.Errorf("got error %v, stored %d", err, stored(t, f))
	}
	if got, err := f.Events(0, 10); err != nil || len(got) != 2 || f.Journal().Last != 2 {
		t.Errorf("readers see %d events, %v, %+v", len(got), err, f.Journal())
	}
	if err := f.Commit(batch(1)); err != nil {
		t.Errorf("retry: %v", err)
	}
	if got, err := f.Events(0, 10); err != nil || len(got) != 4 || f.Journal().Last != 4 {
		t.Errorf("readers see %d events, %v, %+v", len(got), err, f.Journal())
	}
}

func TestFaultyHook(t *testing.T) {
	f := newFaulty()
	var seen []*store.Batch
	refuse := errors.New("refused")
	f.Hook(func(b *store.Batch) error {
		seen = append(seen, b)
		if len(seen) == 1 {
			return refuse
		}
		return nil
	})
	b := batch(0)
	if err := f.Commit(b); !errors.Is(err, refuse) {
		t.Errorf("got error %v", err)
	}
	if err := f.Commit(b); err != nil || len(seen) != 2 || seen[0] != b {
		t.Errorf("got error %v, saw %d batches", err, len(seen))
	}
}

func TestFaultyHold(t *testing.T) {
	f := newFaulty()
	release := f.Hold()
	done := make(chan error)
	go func() { done <- f.Commit(batch(0)) }()
	select {
	case err := <-done:
		t.Fatalf("the commit didn't wait: %v", err)
	default:
	}
	if f.Journal().Last != 0 || stored(t, f) != -1 { // readers don't wait
		t.Error("something was written")
	}
	release()
	release()
	if err := <-done; err != nil || f.Journal().Last != 2 {
		t.Errorf("got error %v, journal %+v", err, f.Journal())
	}
}

// A hook may fail a rescue, and may end the faults that it mends.
func TestFaultyRescue(t *testing.T) {
	f := newFaulty()
	f.FailAfter(-1, store.ErrIO)
	if err := f.Commit(batch(0)); !errors.Is(err, store.ErrIO) {
		t.Fatal(err)
	}
	refuse := errors.New("refused")
	f.OnRescue(func(cause error) error {
		if !errors.Is(cause, store.ErrIO) {
			t.Errorf("cause %v", cause)
		}
		return refuse
	})
	if err := f.Rescue(store.ErrIO); !errors.Is(err, refuse) {
		t.Errorf("got error %v", err)
	}
	f.OnRescue(func(error) error { f.FailAfter(0, nil); return nil })
	if err := f.Rescue(store.ErrIO); err != nil || f.Journal().Last != 0 {
		t.Errorf("got error %v; readers see up to %d", err, f.Journal().Last)
	}
	if err := f.Commit(batch(0)); err != nil || f.Journal().Last != 2 {
		t.Errorf("got error %v; readers see up to %d", err, f.Journal().Last)
	}
	if rescued, renewed := f.Rescues(); rescued != 1 || renewed != 0 {
		t.Errorf("counted %d and %d", rescued, renewed)
	}
}

func TestFaultyRenew(t *testing.T) {
	f := newFaulty()
	if err := f.Commit(batch(0)); err != nil {
		t.Fatal(err)
	}
	refuse := errors.New("refused")
	f.OnRenew(func(error) error { return refuse })
	if err := f.Renew(store.ErrDamaged, Anew()); !errors.Is(err, refuse) || stored(t, f) != 0 || f.Journal().Last != 2 {
		t.Errorf("got error %v, stored %d", err, stored(t, f))
	}
	f.OnRenew(nil)
	if err := f.Renew(store.ErrDamaged, Anew()); err != nil || stored(t, f) != -1 || f.Journal() != (store.Journal{Epoch: Anew().Meta.Epoch}) {
		t.Errorf("got error %v, stored %d, journal %+v", err, stored(t, f), f.Journal())
	}
	if rescued, renewed := f.Rescues(); rescued != 0 || renewed != 1 {
		t.Errorf("counted %d and %d", rescued, renewed)
	}
	// A store that offers no rescue says so, and why one was wanted.
	plain := NewFaulty(struct{ store.Store }{store.NewMemory(Runtime, store.Retention{})})
	if err := plain.Rescue(store.ErrIO); !errors.Is(err, store.ErrIO) {
		t.Errorf("got error %v", err)
	}
}
