package store_test

import (
	"os"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

func TestMemoryConformance(t *testing.T) {
	storetest.Run(t, func(_ testing.TB, keep store.Retention) func(storetest.TB) store.Store {
		var m *store.Memory
		return func(storetest.TB) store.Store {
			if m == nil {
				m = store.NewMemory(storetest.Runtime, keep)
			} else {
				m = m.Reopen()
			}
			return m
		}
	})
}

// The wrapper must change nothing as long as it isn't told to.
func TestFaultyConformance(t *testing.T) {
	storetest.Run(t, func(_ testing.TB, keep store.Retention) func(storetest.TB) store.Store {
		var m *store.Memory
		return func(storetest.TB) store.Store {
			if m == nil {
				m = store.NewMemory(storetest.Runtime, keep)
			} else {
				m = m.Reopen()
			}
			return storetest.NewFaulty(m)
		}
	})
}

func TestBoltConformance(t *testing.T) {
	storetest.Run(t, func(t testing.TB, keep store.Retention) func(storetest.TB) store.Store {
		cfg := store.BoltConfig{Dir: memoryDir(t), Runtime: storetest.Runtime, Retention: keep}
		t.Cleanup(func() { checkFile(t, cfg.Dir) })
		first := true
		return func(t storetest.TB) store.Store {
			t.Helper()
			b, report, err := store.OpenBolt(cfg)
			if err != nil {
				t.Fatalf("OpenBolt: %v", err)
			}
			if want := (store.OpenReport{Fresh: first}); report != want {
				t.Errorf("report is %+v, want %+v", report, want)
			}
			first = false
			return b
		}
	})
}

// memoryDir returns a new directory in memory if there is such a file system.
// The suite makes thousands of commits, and it is about what they mean, not
// about the disk.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "plegd-store-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// checkFile checks a closed state file by bbolt's own means and by ours.
func checkFile(t testing.TB, dir string) {
	t.Helper()
	report, err := store.Verify(dir)
	if err != nil || len(report.Damaged) > 0 || report.Pages.Lost > 0 {
		t.Errorf("Verify: %+v, %v", report, err)
	}
	db, err := bolt.Open(report.Path, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: store.DefaultTimeout})
	if err != nil {
		t.Errorf("bbolt: %v", err)
		return
	}
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("bbolt: check: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Errorf("bbolt: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Errorf("bbolt: close: %v", err)
	}
}
