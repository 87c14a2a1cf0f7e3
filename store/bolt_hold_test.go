package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// A second start is refused although somebody deleted the lock file, and
// touches nothing: what the first one is writing just then is not damage.
func TestSecondStartWithoutTheLockFile(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, 50)
	first, _ := openBolt(t, config(dir))
	before, err := os.Stat(first.Path())
	if err != nil {
		t.Fatal(err)
	}

	var wg sync.WaitGroup
	stop, last := make(chan struct{}), first.Journal().Last
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			batch := &store.Batch{Meta: storetest.Meta(storetest.Epoch, 2), Events: storetest.Events(last+1, 20, 2)}
			for i := range 20 {
				batch.Records = append(batch.Records, storetest.Sandbox(fmt.Sprintf("s%04d", i), int(last)))
			}
			if err := first.Commit(batch); err != nil {
				t.Errorf("the first one can't commit any more: %v", err)
				return
			}
			last += 20
		}
	})
	cfg := config(dir)
	cfg.Timeout = time.Millisecond
	cfg.Check = func(string) error {
		t.Error("a live file is examined")
		return store.ErrDamaged
	}
	for range 50 {
		if err := os.Remove(filepath.Join(dir, store.LockName)); err != nil {
			t.Fatal(err)
		}
		b, report, err := store.OpenBolt(cfg)
		if !errors.Is(err, store.ErrLocked) || report.SetAside != "" {
			t.Errorf("got report %+v and error %v, want %q", report, err, store.ErrLocked)
			if b != nil {
				_ = b.Close()
			}
			break
		}
	}
	close(stop)
	wg.Wait()

	after, err := os.Stat(first.Path())
	if err != nil || !os.SameFile(before, after) || len(contents(t, dir)) != 1 {
		t.Errorf("the live file was moved: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, report := openBolt(t, config(dir))
	if j := again.Journal(); report != (store.OpenReport{}) || j.Last != last {
		t.Errorf("report is %+v, the journal ends at %d, want %d", report, j.Last, last)
	}
}

// A file that is condemned is only set aside by one who has it alone.
func TestDamagedFileInUseIsNotSetAside(t *testing.T) {
	for name, c := range map[string]struct {
		data string
		lock int
	}{
		"writer":            {"no state at all", unix.LOCK_EX},
		"writer, empty":     {"", unix.LOCK_EX},
		"one who condemned": {"no state at all", unix.LOCK_SH},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, store.FileName)
			if err := os.WriteFile(path, []byte(c.data), 0o600); err != nil {
				t.Fatal(err)
			}
			other, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			if err := unix.Flock(int(other.Fd()), c.lock); err != nil {
				t.Fatal(err)
			}
			cfg := config(dir)
			cfg.Timeout = time.Millisecond
			before := contents(t, dir)
			_, _, err = store.OpenBolt(cfg)
			mustMention(t, err, store.ErrLocked, path)
			if after := contents(t, dir); fmt.Sprint(before) != fmt.Sprint(after) {
				t.Errorf("something was touched: %v", after)
			}
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			_, report := openBolt(t, cfg)
			if !report.Fresh || (report.SetAside != "") != (c.data != "") {
				t.Errorf("report is %+v", report)
			}
		})
	}
}

// The lock is not given up between the examination and the opening: what was
// examined is what is opened.
func TestFileIsLockedWhileItIsExamined(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, 3)
	locked := func(how int) bool {
		f, err := os.Open(filepath.Join(dir, store.FileName))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return errors.Is(unix.Flock(int(f.Fd()), how|unix.LOCK_NB), unix.EWOULDBLOCK)
	}
	cfg, checked := config(dir), false
	cfg.Check = func(path string) error {
		checked = true
		if !locked(unix.LOCK_EX) {
			t.Error("others can write meanwhile")
		}
		r, err := store.OpenBoltReadOnly(path) // as a checking child would
		if err != nil {
			return err
		}
		return r.Close()
	}
	b, report := openBolt(t, cfg)
	if !checked || report.CheckError != nil {
		t.Errorf("checked: %v, report %+v", checked, report)
	}
	if !locked(unix.LOCK_SH) {
		t.Error("an open file can be locked by others")
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if locked(unix.LOCK_EX) {
		t.Error("a closed file is still locked")
	}
}
