package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// bigBatch is commit number n of a state that grows: its records take about
// 64 KiB.
func bigBatch(n int) *store.Batch {
	batch := &store.Batch{Meta: storetest.Meta(storetest.Epoch, int64(n)), Events: storetest.Events(uint64(1+10*n), 10, int64(n))}
	for i := range 8 {
		c := storetest.Container(fmt.Sprintf("c%d-%d", n, i), "s", i)
		c.Rest = strings.Repeat(c.ID, 8192/len(c.ID))
		batch.Records = append(batch.Records, c)
	}
	return batch
}

// fillUntilFull commits until there is no room and returns the batch that
// failed, whose number is n.
func fillUntilFull(t *testing.T, s store.Store, n int) (failed *store.Batch, number int) {
	t.Helper()
	for ; n < 1000; n++ {
		batch := bigBatch(n)
		if err := s.Commit(batch); errors.Is(err, store.ErrFull) {
			t.Logf("commit %d: %v", n, err)
			return batch, n
		} else if err != nil {
			t.Fatalf("commit %d: %v", n, err)
		}
	}
	t.Fatal("it never became full")
	return nil, 0
}

// mustHold fails unless exactly the commits before n are there.
func mustHold(t *testing.T, s store.Store, n int) {
	t.Helper()
	snapshot, err := s.Load()
	if err != nil || len(snapshot.Records) != 8*n {
		t.Fatalf("got %d records and error %v, want %d", len(snapshot.Records), err, 8*n)
	}
	if j := s.Journal(); j.Last != uint64(10*n) || j.Entries != 10*n {
		t.Fatalf("journal is %+v, want %d entries", j, 10*n)
	}
	if events, err := s.Events(uint64(10*n)-5, 100); err != nil || len(events) != 5 {
		t.Fatalf("got %d events and error %v, want 5", len(events), err)
	}
}

// Rule D3: after a full disk or MaxSize the same batch is committed again in
// place. Until then everything written before can be read.
func TestD3MaxSize(t *testing.T) {
	dir := t.TempDir()
	cfg := config(dir)
	cfg.MaxSize = 1 << 20
	cfg.Retention = store.Retention{Bytes: 1 << 18}
	b, _ := openBolt(t, cfg)
	failed, n := fillUntilFull(t, b, 0)
	for range 3 {
		if err := b.Commit(failed); !errors.Is(err, store.ErrFull) {
			t.Errorf("again: got error %v, want ErrFull", err)
		}
		mustHold(t, b, n)
	}
	if info, err := os.Stat(b.Path()); err != nil || info.Size() > int64(cfg.MaxSize) {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	// What is deleted makes room in place.
	small := &store.Batch{Meta: failed.Meta}
	for i := range n / 2 {
		for j := range 8 {
			small.Gone = append(small.Gone, store.Key{Kind: store.KindContainer, ID: fmt.Sprintf("c%d-%d", i, j)})
		}
	}
	if err := b.Commit(small); err != nil {
		t.Fatalf("deleting: %v", err)
	}
	if err := b.Commit(small); err != nil { // the freed pages are free one commit later
		t.Fatalf("deleting: %v", err)
	}
	if err := b.Commit(failed); err != nil {
		t.Fatalf("after making room: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, dir)
	// A file above a limit that was lowered since can be opened and read.
	cfg.MaxSize, cfg.Retention.Bytes = 512<<10, 1<<17
	openBolt(t, cfg)
}

func TestDiskFullInTheMiddleOfTheRun(t *testing.T) {
	disk := storetest.SmallDisk(t, "4m")
	dir := filepath.Join(disk, "state")
	b, _ := openBolt(t, config(dir))
	for n := range 4 {
		if err := b.Commit(bigBatch(n)); err != nil {
			t.Fatal(err)
		}
	}
	free := storetest.Fill(t, disk)
	failed, n := fillUntilFull(t, b, 4)
	for range 3 {
		if err := b.Commit(failed); !errors.Is(err, store.ErrFull) {
			t.Errorf("again: got error %v, want ErrFull", err)
		}
		mustHold(t, b, n)
	}
	free()
	if err := b.Commit(failed); err != nil {
		t.Fatalf("with room: %v", err)
	}
	mustHold(t, b, n+1)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, dir)
	b, report := openBolt(t, config(dir))
	if report != (store.OpenReport{}) {
		t.Errorf("report is %+v", report)
	}
	mustHold(t, b, n+1)
}

// A start on a full disk reads what is there; it can't make a new file, says
// so, and leaves a damaged one where it is.
func TestDiskFullAtTheStart(t *testing.T) {
	disk := storetest.SmallDisk(t, "4m")
	old, fresh := filepath.Join(disk, "old"), filepath.Join(disk, "fresh")
	filled(t, old, 5)
	if err := os.Mkdir(fresh, 0o700); err != nil {
		t.Fatal(err)
	}
	free := storetest.Fill(t, disk)
	b, _ := openBolt(t, config(old))
	if s, err := b.Load(); err != nil || len(s.Records) != 10 {
		t.Errorf("got %d records and error %v", len(s.Records), err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err := store.OpenBolt(config(fresh))
	mustMention(t, err, store.ErrFull, fresh)
	t.Log(err)
	change(t, b.Path(), func(d []byte) []byte { return d[:5000] })
	before := contents(t, old)
	storetest.Fill(t, disk)
	_, _, err = store.OpenBolt(config(old))
	mustMention(t, err, store.ErrFull, old)
	t.Log(err)
	if after := contents(t, old); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("the damaged file was touched")
	}
	free()
	_, report := openBolt(t, config(old))
	if !report.Fresh || report.SetAside == "" {
		t.Errorf("report is %+v", report)
	}
	openBolt(t, config(fresh))
}

func TestReadOnlyFileSystem(t *testing.T) {
	disk := storetest.SmallDisk(t, "4m")
	dir := filepath.Join(disk, "state")
	filled(t, dir, 5)
	if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Skipf("SKIPPED: this test needs to remount a tmpfs: %v", err)
	}
	for _, place := range []string{dir, filepath.Join(disk, "other")} {
		_, _, err := store.OpenBolt(config(place))
		mustMention(t, err, store.ErrUnwritable, place)
		t.Log(err)
	}
	report, err := store.Verify(dir) // looking needs no writing
	if err != nil || report.Sandboxes != 5 {
		t.Errorf("got %+v and error %v", report, err)
	}
}
