package storetest

import (
	"cmp"
	"errors"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/plegd/plegd/store"
)

// Backend makes an empty state that describes [Runtime] and returns a function
// that opens it. The function is called again only after the store it
// returned was closed, and then opens what that one left. The test ends by
// closing the last one. Zero fields of keep mean the defaults.
type Backend func(t testing.TB, keep store.Retention) (open func(t TB) store.Store)

// TB is the part of testing.TB that helpers need; rapid's T has it too.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Run checks everything that the package store promises of its stores.
func Run(t *testing.T, backend Backend) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Backend)
	}{
		{"Fresh", testFresh},
		{"RoundTrip", testRoundTrip},
		{"Deletions", testDeletions},
		{"Retry", testRetry},
		{"RetryAfterRetention", testRetryAfterRetention},
		{"Conflict", testConflict},
		{"MalformedBatch", testMalformedBatch},
		{"Placement", testPlacement},
		{"EmptyBatchWritesMeta", testEmptyBatch},
		{"Events", testEvents},
		{"EventsLimits", testEventsLimits},
		{"EventsExpired", testEventsExpired},
		{"NewEpoch", testNewEpoch},
		{"RetentionByEntries", testRetentionEntries},
		{"RetentionByAge", testRetentionAge},
		{"RetentionByBytes", testRetentionBytes},
		{"RetentionIsAmortised", testRetentionAmortised},
		{"ReadersSeeWholeCommits", testReaders},
		{"Rescue", testRescue},
		{"Renew", testRenew},
		{"Closed", testClosed},
		{"Model", testModel},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, backend) })
	}
}

// tester is a store under test with helpers that fail the test.
type tester struct {
	TB
	open func(TB) store.Store
	s    store.Store
}

func start(t *testing.T, backend Backend, keep store.Retention) *tester {
	t.Helper()
	open := backend(t, keep)
	x := &tester{t, open, open(t)}
	t.Cleanup(func() {
		if err := x.s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return x
}

// reopen closes the store and opens it again, as after a restart.
func (x *tester) reopen() {
	x.Helper()
	if err := x.s.Close(); err != nil {
		x.Fatalf("Close: %v", err)
	}
	x.s = x.open(x.TB)
}

func (x *tester) commit(b *store.Batch) {
	x.Helper()
	if err := x.s.Commit(b); err != nil {
		x.Fatalf("Commit: %v", err)
	}
}

func (x *tester) load() *store.Snapshot {
	x.Helper()
	s, err := x.s.Load()
	if err != nil {
		x.Fatalf("Load: %v", err)
	}
	return s
}

// events reads all entries after a number.
func (x *tester) events(after uint64) []store.Event {
	x.Helper()
	var all []store.Event
	for {
		got, err := x.s.Events(after, 1000)
		if err != nil {
			x.Fatalf("Events(%d): %v", after, err)
		}
		if len(got) == 0 {
			return all
		}
		all = append(all, got...)
		after = got[len(got)-1].Position.Seq
	}
}

// same fails unless both values are the same; nil and empty are.
func (x *tester) same(what string, want, got any) {
	x.Helper()
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		x.Errorf("%s differs (-want +got):\n%s", what, diff)
	}
}

func (x *tester) expired(after uint64) {
	x.Helper()
	if got, err := x.s.Events(after, 10); !errors.Is(err, store.ErrExpired) {
		x.Errorf("Events(%d): got %d events and error %v, want ErrExpired", after, len(got), err)
	}
}

// journal checks first, last and number of entries.
func (x *tester) journal(first, last uint64, entries int) {
	x.Helper()
	j := x.s.Journal()
	if j.First != first || j.Last != last || j.Entries != entries || (entries > 0) != (j.Bytes > 0) {
		x.Errorf("journal is %+v, want %d to %d, %d entries", j, first, last, entries)
	}
}

func sortRecords(r []*store.Record) []*store.Record {
	slices.SortFunc(r, func(a, b *store.Record) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	return r
}
