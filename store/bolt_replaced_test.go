package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// A file that was deleted or replaced under a running agent is noticed by the
// next commit, and a rescue puts the state back where the next start finds it.
func TestFileReplacedUnderneath(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(t *testing.T, path string) error
		aside bool // something is found in its place that must be kept
	}{
		"deleted": {do: func(_ *testing.T, path string) error { return os.Remove(path) }},
		"renamed": {do: func(_ *testing.T, path string) error { return os.Rename(path, path+".old") }},
		"another file": {aside: true, do: func(_ *testing.T, path string) error {
			return errors.Join(os.WriteFile(path+".x", []byte("a backup"), 0o600), os.Rename(path+".x", path))
		}},
		"an empty file": {do: func(_ *testing.T, path string) error {
			return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600))
		}},
		"its own copy": {aside: true, do: func(t *testing.T, path string) error {
			data, err := os.ReadFile(path)
			return errors.Join(err, os.Remove(path), os.WriteFile(path, data, 0o600))
		}},
		"a directory": {aside: true, do: func(_ *testing.T, path string) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		}},
		"directory deleted": {do: func(_ *testing.T, path string) error { return os.RemoveAll(filepath.Dir(path)) }},
		"directory renamed": {do: func(_ *testing.T, path string) error {
			return os.Rename(filepath.Dir(path), filepath.Dir(path)+"-old")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b, dir := rescued(t)
			if err := c.do(t, b.Path()); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				mustMention(t, b.Commit(next(161)), store.ErrReplaced, b.Path())
			}
			if j := b.Journal(); j.Last != 160 {
				t.Errorf("readers see up to %d, want what was acknowledged", j.Last)
			}
			if err := b.Rescue(store.ErrReplaced); err != nil {
				t.Fatal(err)
			}
			if got := b.Aside() != ""; got != c.aside {
				t.Errorf("set aside: %q, want one: %v", b.Aside(), c.aside)
			}
			if err := b.Commit(next(161)); err != nil {
				t.Fatal(err)
			}
			mustBeLocked(t, dir)
			before := readWhole(t, b)
			if before.Journal.Last != 163 || len(before.Snapshot.Records) != 80 {
				t.Errorf("journal %+v, %d records", before.Journal, len(before.Snapshot.Records))
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			checkFile(t, dir)
			again, report := openBolt(t, config(dir))
			if diff := cmp.Diff(before, readWhole(t, again)); diff != "" || report != (store.OpenReport{}) {
				t.Errorf("after a restart %+v; it differs (-before +after):\n%s", report, diff)
			}
		})
	}
}

// Where another process has taken the state over, a rescue gives way.
func TestRescueGivesWayToAnotherProcess(t *testing.T) {
	t.Run("with a new directory", func(t *testing.T) {
		b, dir := rescued(t)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		other, report := openBolt(t, config(dir))
		if !report.Fresh {
			t.Errorf("report is %+v", report)
		}
		giveWay(t, b, other)
	})
	for name, c := range map[string]struct {
		file string
		lock int
	}{
		"that writes a new file": {store.FileName, unix.LOCK_EX},
		"that reads a new file":  {store.FileName, unix.LOCK_SH},
		"that is starting":       {store.LockName, unix.LOCK_EX}, // and has made no file yet
	} {
		t.Run(name, func(t *testing.T) {
			b, dir := rescued(t)
			path := filepath.Join(dir, c.file)
			if err := errors.Join(os.Remove(b.Path()), os.RemoveAll(path), os.WriteFile(path, []byte("theirs"), 0o600)); err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := unix.Flock(int(f.Fd()), c.lock); err != nil {
				t.Fatal(err)
			}
			mustMention(t, b.Rescue(store.ErrReplaced), store.ErrLocked, dir)
			mustMention(t, b.Renew(store.ErrReplaced, storetest.Anew()), store.ErrLocked, dir)
			if got, err := os.ReadFile(path); string(got) != "theirs" || err != nil {
				t.Errorf("the other's file is %q, %v", got, err)
			}
			if aside, err := filepath.Glob(b.Path() + "*"); err != nil || len(aside) != strings.Count(c.file, store.FileName) {
				t.Errorf("something was put there: %q, %v", aside, err)
			}
		})
	}
}

func giveWay(t *testing.T, b, other *store.Bolt) {
	t.Helper()
	mustMention(t, b.Commit(next(161)), store.ErrReplaced)
	before := contents(t, filepath.Dir(other.Path()))
	mustMention(t, b.Rescue(store.ErrReplaced), store.ErrLocked, filepath.Dir(b.Path()))
	mustMention(t, b.Renew(store.ErrReplaced, storetest.Anew()), store.ErrLocked)
	if diff := cmp.Diff(before, contents(t, filepath.Dir(other.Path()))); diff != "" {
		t.Errorf("the other's directory was touched:\n%s", diff)
	}
	if err := other.Commit(next(1)); err != nil {
		t.Errorf("the other one can't commit: %v", err)
	}
}

// A lock file that was deleted or replaced is back with the next commit.
func TestLockFileComesBack(t *testing.T) {
	for name, do := range map[string]func(path string) error{
		"deleted":  os.Remove,
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, []byte("1\n"), 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			b, dir := rescued(t)
			if err := do(filepath.Join(dir, store.LockName)); err != nil {
				t.Fatal(err)
			}
			if err := b.Commit(next(161)); err != nil {
				t.Fatal(err)
			}
			mustBeLocked(t, dir)
		})
	}
}
