package store_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/plegd/plegd/store"
)

func TestCompact(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, 100)
	b, _ := openBolt(t, config(dir))
	gone := next(401)
	for i := 5; i < 95; i++ {
		gone.Gone = append(gone.Gone, store.Key{Kind: store.KindContainer, ID: fmt.Sprintf("c%04d", i)})
	}
	if err := b.Commit(gone); err != nil {
		t.Fatal(err)
	}
	_, err := store.Compact(dir)
	mustMention(t, err, store.ErrLocked, dir, fmt.Sprint("pid ", os.Getpid()))
	before := readWhole(t, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, b.Path()} { // the second time there is nothing to gain
		info, err := os.Stat(b.Path())
		if err != nil {
			t.Fatal(err)
		}
		c, err := store.Compact(path)
		if err != nil || c.Path != b.Path() || c.Before != info.Size() {
			t.Fatalf("got %+v, %v; the file had %d bytes", c, err, info.Size())
		}
		t.Logf("%+v", c)
		if info, err = os.Stat(b.Path()); err != nil || info.Size() != c.After {
			t.Errorf("got %+v; the file has %d bytes, %v", c, info.Size(), err)
		}
		if path == dir && c.After > c.Before*3/4 {
			t.Errorf("only %d of %d bytes were saved", c.Before-c.After, c.Before)
		}
	}
	if got := contents(t, dir); len(got) != 1 {
		t.Errorf("left behind: %d files", len(got))
	}
	checkFile(t, dir)
	again, report := openBolt(t, config(dir))
	if diff := cmp.Diff(before, readWhole(t, again)); diff != "" || report != (store.OpenReport{}) {
		t.Errorf("%+v; it differs (-before +after):\n%s", report, diff)
	}
}

// What is no sound state file is refused untouched; single bad values are not
// lost sight of.
func TestCompactRepairsNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := store.Compact(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing there: got error %v", err)
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) != 0 {
		t.Errorf("nothing there: %v was made, %v", made, err)
	}
	filled(t, dir, 20)
	rawUpdate(t, dir, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("containers")).Put([]byte("c0003"), []byte("garbage"))
	})
	if _, err := store.Compact(dir); err != nil {
		t.Error(err)
	}
	if report, err := store.Verify(dir); err != nil || len(report.Damaged) != 1 || report.Containers != 19 {
		t.Errorf("got %+v, %v", report, err)
	}
	path := filepath.Join(dir, store.FileName)
	for name, spoil := range map[string]func(d []byte) []byte{
		"emptied":                  func([]byte) []byte { return nil },
		"cut to half":              damages["cut to half"],
		"meta newer than its data": damages["meta newer than its data"],
	} {
		change(t, path, spoil)
		before := contents(t, dir)
		if _, err := store.Compact(dir); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("%s: got error %v", name, err)
		}
		if fmt.Sprint(before) != fmt.Sprint(contents(t, dir)) {
			t.Errorf("%s: something was touched", name)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		filled(t, dir, 20)
	}
}

// What takes the file's name while it is compacted is kept.
func TestCompactKeepsWhatTakesItsName(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, 20)
	path := filepath.Join(dir, store.FileName)
	b, err := store.OpenToCompact(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path+".x", []byte("a backup"), 0o600), os.Rename(path+".x", path)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Rescue(nil), b.Close()); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(b.Aside()); err != nil || string(kept) != "a backup" {
		t.Errorf("kept %q, %v", kept, err)
	}
	if report, err := store.Verify(dir); err != nil || report.Containers != 20 {
		t.Errorf("got %+v, %v", report, err)
	}
}
