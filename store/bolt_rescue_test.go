package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// rescued makes a store with 40 pods and 160 events, open.
func rescued(t *testing.T) (*store.Bolt, string) {
	t.Helper()
	dir := filepath.Join(memoryDir(t), "state")
	filled(t, dir, 40)
	cfg := config(dir)
	cfg.Timeout = 50 * time.Millisecond
	b, _ := openBolt(t, cfg)
	return b, dir
}

// next is a batch that fits what rescued made.
func next(first uint64) *store.Batch {
	return &store.Batch{
		Meta:    storetest.Meta(storetest.Epoch, 2),
		Records: []*store.Record{storetest.Sandbox("s0001", 9), storetest.Container("new", "s0001", 9)},
		Gone:    []store.Key{{Kind: store.KindContainer, ID: "c0002"}},
		Events:  storetest.Events(first, 3, 2),
	}
}

// whole is everything that a store has.
type whole struct {
	Snapshot *store.Snapshot
	Journal  store.Journal
	Events   []store.Event
}

func readWhole(t *testing.T, s store.Store) whole {
	t.Helper()
	snap, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	w := whole{Snapshot: snap, Journal: s.Journal()}
	if w.Journal.Entries > 0 {
		if w.Events, err = s.Events(w.Journal.First-1, 10_000); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// Rule D3: a rescue moves everything to a new file, under the same name and
// with both locks held, and the same batch is then written there.
func TestD3RescueGoesOnWithANewFile(t *testing.T) {
	b, dir := rescued(t)
	if err := b.Commit(next(161)); err != nil {
		t.Fatal(err)
	}
	before := readWhole(t, b)
	old, err := os.Stat(b.Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Rescue(store.ErrIO); err != nil {
		t.Fatal(err)
	}
	if now, err := os.Stat(b.Path()); err != nil || os.SameFile(old, now) {
		t.Errorf("it is still the old file, %v", err)
	}
	if diff := cmp.Diff(before, readWhole(t, b)); diff != "" {
		t.Errorf("the new file differs (-old +new):\n%s", diff)
	}
	if names := slices.Sorted(keys(contents(t, dir))); !slices.Equal(names, []string{store.FileName}) || b.Aside() != "" {
		t.Errorf("left behind: %q, %q", names, b.Aside())
	}
	mustBeLocked(t, dir)
	for range 2 { // again is nothing new
		if err := b.Commit(next(161)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Commit(next(164)); err != nil {
		t.Fatal(err)
	}
	before = readWhole(t, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, dir)
	again, report := openBolt(t, config(dir))
	if diff := cmp.Diff(before, readWhole(t, again)); diff != "" || report != (store.OpenReport{}) {
		t.Errorf("after a restart %+v; it differs (-before +after):\n%s", report, diff)
	}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// mustBeLocked fails unless another start is refused, with the lock file and,
// once that is deleted, without it.
func mustBeLocked(t *testing.T, dir string) {
	t.Helper()
	cfg := config(dir)
	cfg.Timeout = time.Millisecond
	_, _, err := store.OpenBolt(cfg)
	mustMention(t, err, store.ErrLocked, "state directory "+dir, fmt.Sprint("pid ", os.Getpid())) // by the lock file, that is
	if err := os.Remove(filepath.Join(dir, store.LockName)); err != nil {
		t.Fatal(err)
	}
	_, _, err = store.OpenBolt(cfg)
	mustMention(t, err, store.ErrLocked, store.FileName)
}

// A renewal keeps the old file, at most two of them, and goes on with an empty
// one. It works with a file that is damaged beyond use.
func TestD3RenewStartsOver(t *testing.T) {
	b, dir := rescued(t)
	for round := range 4 {
		epoch := timestamps.Epoch{byte(round + 1)}
		if round > 0 {
			if err := os.Truncate(b.Path(), 2*4096); err != nil { // reading beyond is a fault
				t.Fatal(err)
			}
			mustMention(t, b.Commit(next(9)), store.ErrDamaged)
			mustMention(t, b.Rescue(store.ErrDamaged), store.ErrDamaged)
		}
		old, err := os.ReadFile(b.Path())
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Renew(store.ErrDamaged, storetest.Anew()); err != nil {
			t.Fatal(err)
		}
		if kept, err := os.ReadFile(b.Aside()); err != nil || !bytes.Equal(kept, old) {
			t.Errorf("round %d: the old file isn't in %q: %v", round, b.Aside(), err)
		}
		if j := b.Journal(); j != (store.Journal{Epoch: storetest.Anew().Meta.Epoch}) {
			t.Errorf("round %d: the journal is %+v, want none", round, j)
		}
		if got, err := b.Events(1, 10); len(got) != 0 || err != nil {
			t.Errorf("round %d: events %+v, %v", round, got, err)
		}
		if s, err := b.Load(); err != nil || len(s.Records) != 0 || s.Meta.Epoch != storetest.Anew().Meta.Epoch || s.Meta.Runtime != storetest.Runtime {
			t.Errorf("round %d: state %+v, %v", round, s, err)
		}
		batch := &store.Batch{Meta: storetest.Meta(epoch, 3), Records: []*store.Record{storetest.Sandbox("s1", round)}, Events: storetest.Events(1, 2, 3)}
		for i := range batch.Events {
			batch.Events[i].Position.Epoch = epoch
		}
		if err := b.Commit(batch); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Events(0, 10); len(got) != 2 || err != nil || got[1].Position.Epoch != epoch {
			t.Errorf("round %d: events %+v, %v", round, got, err)
		}
	}
	if aside, err := filepath.Glob(b.Path() + ".damaged-*"); err != nil || len(aside) != 2 || !slices.Contains(aside, b.Aside()) {
		t.Errorf("set aside: %q, %v; want the last two", aside, err)
	}
	mustBeLocked(t, dir)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, dir)
}

// Readers go on through rescues, and through renewals get what there is, or a
// clean error.
func TestReadersDuringRescues(t *testing.T) {
	b, _ := rescued(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			for n := uint64(0); ; n = (n + 1) % 100 {
				select {
				case <-stop:
					return
				default:
				}
				events, err := b.Events(n, 50)
				if err != nil || len(events) != 50 || events[0].Position.Seq != n+1 {
					t.Errorf("Events(%d): %d events, %v", n, len(events), err)
					return
				}
				if _, ok := b.PodOf("c0003"); !ok || b.Journal().Last < 160 {
					t.Errorf("a container is lost, journal %+v", b.Journal())
					return
				}
			}
		})
	}
	for n := range 20 {
		if err := b.Rescue(store.ErrIO); err != nil {
			t.Fatal(err)
		}
		if err := b.Commit(next(uint64(161 + 3*n))); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()

	stop = make(chan struct{})
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				events, err := b.Events(0, 10)
				if err != nil && !errors.Is(err, store.ErrExpired) {
					t.Errorf("Events: %v", err)
					return
				}
				for i, e := range events {
					if e.Position != (timestamps.Position{Epoch: storetest.Epoch, Seq: uint64(i + 1)}) || e.Container.ID != "c1" {
						t.Errorf("misread %+v", e)
						return
					}
				}
			}
		})
	}
	for range 10 {
		if err := b.Renew(store.ErrDamaged, storetest.Anew()); err != nil {
			t.Error(err)
		}
		if err := b.Commit(next(1)); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
}

// What a rescue can't do leaves the store as it was.
func TestD3RescueThatFails(t *testing.T) {
	disk := storetest.SmallDisk(t, "4m")
	dir := filepath.Join(disk, "state")
	filled(t, dir, 40)
	b, _ := openBolt(t, config(dir))
	before := readWhole(t, b)
	free := storetest.Fill(t, disk)
	mustMention(t, b.Rescue(store.ErrIO), store.ErrFull, b.Path(), store.ErrIO.Error())
	mustMention(t, b.Renew(store.ErrIO, storetest.Anew()), store.ErrFull, b.Path())
	if diff := cmp.Diff(before, readWhole(t, b)); diff != "" {
		t.Errorf("it differs (-before +after):\n%s", diff)
	}
	free()
	if names := slices.Sorted(keys(contents(t, dir))); !slices.Equal(names, []string{store.FileName}) {
		t.Errorf("left behind: %q", names)
	}
	if err := b.Commit(next(161)); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	mustMention(t, b.Rescue(store.ErrIO), store.ErrClosed)
	mustMention(t, b.Renew(store.ErrIO, storetest.Anew()), store.ErrClosed)
	r, err := store.OpenBoltReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Rescue(store.ErrIO) == nil || r.Renew(store.ErrIO, storetest.Anew()) == nil {
		t.Error("a file opened for reading was rewritten")
	}
}

// A value that went bad in the old file condemns it: the caller knows what it
// was, the file doesn't.
func TestD3RescueDropsNothing(t *testing.T) {
	b, dir := rescued(t)
	change(t, b.Path(), func(d []byte) []byte {
		at := bytes.LastIndex(d, []byte("pod-s0003"))
		if at < 0 {
			t.Fatal("no such value")
		}
		d[at] ^= 0xff
		return d
	})
	mustMention(t, b.Rescue(store.ErrIO), store.ErrDamaged, "can't be copied")
	if names := slices.Sorted(keys(contents(t, dir))); !slices.Equal(names, []string{store.FileName}) {
		t.Errorf("left behind: %q", names)
	}
	if err := b.Renew(store.ErrDamaged, storetest.Anew()); err != nil {
		t.Error(err)
	}
}
