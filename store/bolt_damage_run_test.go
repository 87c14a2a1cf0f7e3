package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// overwrite puts data into an open file, and so into everybody's memory map of
// it.
func overwrite(path string, at int64, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, at)
	return errors.Join(err, f.Close())
}

// runDamages are the ways in which a file goes bad under a running agent.
var runDamages = map[string]func(path string, size int) error{
	"cut to two pages":       func(path string, _ int) error { return os.Truncate(path, 2*4096) }, // reading beyond is a fault
	"emptied":                func(path string, _ int) error { return os.Truncate(path, 0) },
	"noise":                  func(path string, size int) error { return overwrite(path, 8192, bytes.Repeat([]byte{0xa5}, size-8192)) },
	"zeroed":                 func(path string, size int) error { return overwrite(path, 0, make([]byte, size)) },
	"zeroed behind the meta": func(path string, size int) error { return overwrite(path, 8192, make([]byte, size-8192)) },
	"both metas overwritten": func(path string, _ int) error { return overwrite(path, 0, bytes.Repeat([]byte("x"), 8192)) },
}

// Damage that appears during the run ends the use of the file with an error,
// whoever finds it, and neither the process nor a Close hangs on it. A renewal
// goes on in the same process, and so does a start.
func TestDamageDuringTheRun(t *testing.T) {
	batch := &store.Batch{Meta: storetest.Meta(storetest.Epoch, 2), Records: []*store.Record{storetest.Sandbox("s0100", 5)}, Events: storetest.Events(801, 1, 2)}
	finders := map[string]func(b *store.Bolt) error{
		"commit": func(b *store.Bolt) error { return b.Commit(batch) },
		"reader": func(b *store.Bolt) error { _, err := b.Events(5, 10); return err },
		"loader": func(b *store.Bolt) error { _, err := b.Load(); return err },
		"rescue": func(b *store.Bolt) error { return b.Rescue(store.ErrIO) },
	}
	sound := t.TempDir()
	filled(t, sound, 200)
	for name, damage := range runDamages {
		for who, find := range finders {
			t.Run(name+"/"+who, func(t *testing.T) {
				dir := memoryDir(t)
				if err := os.CopyFS(dir, os.DirFS(sound)); err != nil {
					t.Fatal(err)
				}
				b, _ := openBolt(t, config(dir))
				info, err := os.Stat(b.Path())
				if err != nil {
					t.Fatal(err)
				}
				if err := damage(b.Path(), int(info.Size())); err != nil {
					t.Fatal(err)
				}
				if err := find(b); !errors.Is(err, store.ErrDamaged) {
					t.Fatalf("got error %v, want ErrDamaged", err)
				}
				for range 2 {
					mustMention(t, b.Commit(batch), store.ErrDamaged, b.Path())
				}
				for who, find := range finders {
					if err := find(b); !errors.Is(err, store.ErrDamaged) {
						t.Errorf("%s: got error %v, want ErrDamaged", who, err)
					}
				}
				if _, ok := b.PodOf("c0001"); ok {
					t.Error("a container was placed by a damaged file")
				}
				if j := b.Journal(); j.Last != 800 {
					t.Errorf("journal is %+v, want what was committed", j)
				}
				if who == "rescue" {
					if err := b.Renew(store.ErrDamaged, storetest.Anew()); err != nil {
						t.Fatal(err)
					}
					if err := b.Commit(batch); err != nil {
						t.Error(err)
					}
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
				if who == "rescue" {
					checkFile(t, dir)
					return
				}
				again, report := openBolt(t, config(dir))
				if emptied := name == "emptied"; !report.Fresh || (report.SetAside == "") != emptied {
					t.Errorf("report is %+v", report)
				}
				if err := again.Commit(batch); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Rule D3: a disk that fails is an I/O error for as long as it does. What was
// committed can still be read, and a rescue takes it to where writing works.
func TestD3DiskThatFails(t *testing.T) {
	b, dir := rescued(t)
	room := &store.Batch{Meta: storetest.Meta(storetest.Epoch, 2)} // so that the file need not grow
	for i := 10; i < 40; i++ {
		room.Gone = append(room.Gone, store.Key{Kind: store.KindContainer, ID: fmt.Sprintf("c%04d", i)})
	}
	for range 2 { // the freed pages are free one commit later
		if err := b.Commit(room); err != nil {
			t.Fatal(err)
		}
	}
	before := readWhole(t, b)
	// The memory of another process is a file that answers EIO to writes where
	// nothing is mapped, which is so for the first pages of any program.
	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Skipf("SKIPPED: this test needs a program sleep: %v", err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	restore := store.FailWrites(t, b, other.Process.Pid)
	for range 3 {
		mustMention(t, b.Commit(next(161)), store.ErrIO, b.Path())
		if diff := cmp.Diff(before, readWhole(t, b)); diff != "" {
			t.Errorf("it differs (-before +now):\n%s", diff)
		}
	}
	restore() // for a moment the disk works again, in place
	if err := b.Commit(next(161)); err != nil {
		t.Fatal(err)
	}
	before = readWhole(t, b)
	store.FailWrites(t, b, other.Process.Pid)
	mustMention(t, b.Commit(next(164)), store.ErrIO)
	if err := b.Rescue(store.ErrIO); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, readWhole(t, b)); diff != "" {
		t.Errorf("the rescue differs (-before +now):\n%s", diff)
	}
	if err := b.Commit(next(164)); err != nil {
		t.Fatal(err)
	}
	mustBeLocked(t, dir)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	checkFile(t, dir)
}
