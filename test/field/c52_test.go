package field_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store"
)

// statePath is the path of the state file.
func (f *field) statePath() string { return filepath.Join(f.cfg.StateDir, store.FileName) }

// manyPods puts pods with one running container each into the runtime.
func (f *field) manyPods(n int) (containers []string) {
	for i := range n {
		uid := fmt.Sprintf("N%d", i)
		containers = append(containers, f.container("c"+uid, f.sandbox("s"+uid, uid, fmt.Sprintf("10.1.%d.%d", i/250, i%250)), uid, running))
	}
	return containers
}

// editFile changes the state file by bbolt.
func (f *field) editFile(edit func(tx *bbolt.Tx) error) {
	f.t.Helper()
	db, err := bbolt.Open(f.statePath(), 0o600, &bbolt.Options{Timeout: time.Second})
	f.must(err)
	f.must(db.Update(edit))
	f.must(db.Close())
}

// overwrite writes over a part of the state file.
func (f *field) overwrite(at, n int) {
	f.t.Helper()
	file, err := os.OpenFile(f.statePath(), os.O_WRONLY, 0)
	f.must(err)
	_, err = file.WriteAt(bytes.Repeat([]byte{0xA5}, n), int64(at))
	f.must(err)
	f.must(file.Close())
}

// fileSize is the state file's.
func (f *field) fileSize() int64 {
	f.t.Helper()
	info, err := os.Stat(f.statePath())
	f.must(err)
	return info.Size()
}

// leafPage finds a page in use that holds data, and its size.
func (f *field) leafPage() (page, size int) {
	f.t.Helper()
	f.editFile(func(tx *bbolt.Tx) error {
		size = tx.DB().Info().PageSize
		for id := 2; ; id++ {
			info, err := tx.Page(id)
			if err != nil || info == nil {
				return err
			}
			if info.Type == "leaf" && info.Count > 1 && page == 0 {
				page = id
			}
		}
	})
	return page, size
}

// TestC52_StoreIsDamaged in all the ways of the case. After a reset, what exists
// is told anew under a new epoch: allowed, and documented (docs/design.md, D4).
func TestC52_StoreIsDamaged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		damage func(f *field)
		fresh  bool // a new store under a new epoch
		aside  bool // the old file is set aside
		lost   int  // values left out; what they were about is told anew
	}{
		{"0 bytes", func(f *field) { f.must(os.Truncate(f.statePath(), 0)) }, true, false, 0},
		{"cut to 4 KiB", func(f *field) { f.must(os.Truncate(f.statePath(), 4096)) }, true, true, 0},
		{"cut to half", func(f *field) { f.must(os.Truncate(f.statePath(), f.fileSize()/2)) }, true, true, 0},
		{"both meta pages overwritten", func(f *field) { f.overwrite(0, 2*os.Getpagesize()) }, true, true, 0},
		{"one data page overwritten", func(f *field) { page, size := f.leafPage(); f.overwrite(page*size, size) }, true, true, 0},
		{"a text file", func(f *field) { f.must(os.WriteFile(f.statePath(), []byte("not a database\n"), 0o600)) }, true, true, 0},
		{"three values are garbage", func(f *field) {
			f.editFile(func(tx *bbolt.Tx) error {
				var keys [][]byte
				b := tx.Bucket([]byte("containers"))
				if err := b.ForEach(func(k, _ []byte) error { keys = append(keys, slices.Clone(k)); return nil }); err != nil {
					return err
				}
				for _, k := range keys[:3] {
					f.retold[string(k)] = true
					if err := b.Put(k, []byte("garbage")); err != nil {
						return err
					}
				}
				return nil
			})
		}, false, false, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pods := size(60, 200)
			f := newField(t)
			all := f.manyPods(pods)
			f.start()
			f.ready()
			f.eventually()
			epoch := f.g().Position().Epoch
			f.wantsAll(all, "Created", "Started")
			f.stop()

			tt.damage(f)
			f.start()
			f.ready()
			f.eventually()
			f.settled()
			report := f.g().OpenReport()
			if fresh := f.g().Position().Epoch != epoch; fresh != tt.fresh {
				t.Errorf("the epoch is new: %v; the report: %+v", fresh, report)
			}
			if (report.SetAside != "") != tt.aside {
				t.Errorf("set aside: %q", report.SetAside)
			}
			if tt.fresh {
				f.resetsOnce()
				f.wantsAll(all, "Created", "Started", "Created", "Started")
			}
			if tt.aside {
				if _, err := os.Stat(report.SetAside); err != nil {
					t.Errorf("the damaged file: %v", err)
				}
				lines := f.errorLines()
				if len(lines) != 1 || !strings.Contains(lines[0], f.cfg.StateDir) || !strings.Contains(lines[0], report.SetAside) {
					t.Errorf("lines at level error: %v", lines)
				}
				if n := f.metric("condition", "state_reset"); n != 1 {
					t.Errorf("the metric of a reset state is %v", n)
				}
			}
			if tt.lost > 0 && f.log.messages()["damaged entries of the state were left out"] != 1 {
				t.Errorf("logged: %v", f.log.all())
			}
			f.neverUnready()
			f.finish()
		})
	}
}

// TestC52_StoreOfTheFuture is refused, untouched, with an error that says so.
func TestC52_StoreOfTheFuture(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.manyPods(3)
	f.start()
	f.ready()
	f.eventually()
	f.stop()
	const version = "plegd state schema 9"
	value := fmt.Appendf(nil, "%s %08x", version, crc32.Checksum([]byte(version), crc32.MakeTable(crc32.Castagnoli)))
	var old []byte
	f.editFile(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("meta"))
		old = slices.Clone(b.Get([]byte("schema")))
		return b.Put([]byte("schema"), value)
	})
	before, err := os.ReadFile(f.statePath())
	f.must(err)
	_, err = pleg.New(f.cfg)
	if err == nil || !strings.Contains(err.Error(), "schema is 9") || !strings.Contains(err.Error(), f.statePath()) {
		t.Errorf("a newer schema: %v", err)
	}
	after, err := os.ReadFile(f.statePath())
	f.must(err)
	if !bytes.Equal(before, after) {
		t.Error("the file was touched")
	}
	f.editFile(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("schema"), old) })
	f.start()
	f.ready()
	f.finish()
}

// errorLines returns what was logged at level error.
func (f *field) errorLines() (lines []string) {
	for _, line := range f.log.all() {
		if strings.Contains(line, "level=ERROR") && !strings.Contains(line, "condition=never_relisted") { // which a slow machine may cause
			lines = append(lines, line)
		}
	}
	return lines
}

// resetsOnce checks that the reader's position was lost once, and allows that.
func (f *field) resetsOnce() {
	f.t.Helper()
	if f.resets != 1 {
		f.t.Errorf("positions were lost %d times", f.resets)
	}
	f.resets = 0
}

// TestC52Variation_DamagedAgainAndAgain: the file is damaged before each start,
// after runs that were killed: each time it is ready soon, and no more than the
// last two damaged files are kept.
func TestC52Variation_DamagedAgainAndAgain(t *testing.T) {
	t.Parallel()
	f := newField(t)
	all := f.manyPods(20)
	a := f.sandbox("A", "U1", "10.0.0.5")
	for n := range 4 {
		f.start()
		f.ready()
		f.eventually()
		x := f.container(fmt.Sprintf("X%d", n), a, "U1", running, func(c *runtimeapi.ContainerStatus) { c.Metadata.Attempt = uint32(n) })
		f.soon(x, "Started")
		f.stop()
		switch n % 2 {
		case 0:
			f.must(os.Truncate(f.statePath(), f.fileSize()/2))
		case 1:
			f.overwrite(0, 2*os.Getpagesize())
		}
	}
	f.start()
	f.ready()
	f.eventually()
	f.settled()
	if f.resets == 0 {
		t.Error("nothing was reset")
	}
	f.resets = 0
	damaged, err := filepath.Glob(filepath.Join(f.cfg.StateDir, "*damaged*"))
	f.must(err)
	if len(damaged) == 0 || len(damaged) > 2 {
		t.Errorf("kept: %v", damaged)
	}
	if v, ok := f.shown(all[0]); !ok || v.State != "running" {
		t.Errorf("shown: %+v", v)
	}
	f.neverUnready()
	f.finish()
}
