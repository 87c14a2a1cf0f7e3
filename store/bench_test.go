package store_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/checkchild"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// backends opens each kind of store empty.
func backends(b *testing.B) map[string]store.Store {
	b.Helper()
	bolt, _ := openBolt(b, config(b.TempDir()))
	return map[string]store.Store{"bolt": bolt, "memory": store.NewMemory(storetest.Runtime, store.Retention{})}
}

// BenchmarkCommit writes changes to that many containers, each with an event,
// as one transaction.
func BenchmarkCommit(b *testing.B) {
	for name, s := range backends(b) {
		for _, records := range []int{1, 128} {
			b.Run(fmt.Sprintf("store=%s/records=%d", name, records), func(b *testing.B) {
				b.ReportAllocs()
				next := s.Journal().Last + 1
				for n := 0; b.Loop(); n++ {
					batch := &store.Batch{Meta: storetest.Meta(storetest.Epoch, int64(n)), Events: storetest.Events(next, records, int64(n))}
					for i := range records {
						batch.Records = append(batch.Records, storetest.Container(fmt.Sprintf("c%03d", i), "s", n))
					}
					if err := s.Commit(batch); err != nil {
						b.Fatal(err)
					}
					next += uint64(records)
				}
			})
		}
	}
}

// BenchmarkEvents reads a page of the journal, as a reader that catches up
// does.
func BenchmarkEvents(b *testing.B) {
	for name, s := range backends(b) {
		if err := s.Commit(&store.Batch{Meta: storetest.Meta(storetest.Epoch, 1), Events: storetest.Events(1, 10_000, 1)}); err != nil {
			b.Fatal(err)
		}
		for _, limit := range []int{1, 1000} {
			b.Run(fmt.Sprintf("store=%s/events=%d", name, limit), func(b *testing.B) {
				b.ReportAllocs()
				for n := 0; b.Loop(); n++ {
					if got, err := s.Events(uint64(n%8000), limit); err != nil || len(got) != limit {
						b.Fatal(len(got), err)
					}
				}
			})
		}
	}
}

// BenchmarkOpen opens a state of 250 pods with a full journal: the scan of all
// pages, all checksums, and Load.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	filled(b, dir, 250)
	s, _, err := store.OpenBolt(config(dir))
	if err != nil {
		b.Fatal(err)
	}
	for n := uint64(1001); n < store.DefaultEntries; n += 5000 {
		if err := s.Commit(&store.Batch{Meta: storetest.Meta(storetest.Epoch, 1), Events: storetest.Events(n, 5000, 1)}); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s, _, err := store.OpenBolt(config(dir))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Load(); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkChecks examines a state file of 64 MiB in each of the ways that
// there are: the scan that each start makes, all of what a start makes, and
// bbolt's own check, which starts make after an unclean stop, in a child.
func BenchmarkChecks(b *testing.B) {
	dir := b.TempDir()
	s, _, err := store.OpenBolt(config(dir))
	if err != nil {
		b.Fatal(err)
	}
	size := int64(0)
	for n := 0; size < 64<<20; n++ {
		batch := bigBatch(n)
		for k := range 200 {
			batch.Records = append(batch.Records, storetest.Container(fmt.Sprintf("small%d-%d", n, k), "s", n))
		}
		if err := s.Commit(batch); err != nil {
			b.Fatal(err)
		}
		info, err := os.Stat(s.Path())
		if err != nil {
			b.Fatal(err)
		}
		size = info.Size()
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	child := checkchild.Self(time.Minute, "-test.run=^$")
	child.Env = []string{checkEnv + "=1"}
	for _, c := range []struct {
		name  string
		check func() error
	}{
		{"scan", func() error { _, err := store.ScanPages(s.Path()); return err }},
		{"open", func() error {
			s, _, err := store.OpenBolt(config(dir))
			if err != nil {
				return err
			}
			return s.Close()
		}},
		{"bbolt", func() error { return child.Check(b.Context(), s.Path()) }},
	} {
		b.Run("check="+c.name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				if err := c.check(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
