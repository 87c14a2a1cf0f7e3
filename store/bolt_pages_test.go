package store_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// The scan must never condemn what bbolt wrote: files of all shapes, with
// nested and inline buckets, large values, long free lists and other page
// sizes, pass it and agree with bbolt's own count of free pages.
func TestScanAcceptsWhateverBboltWrites(t *testing.T) {
	for _, pageSize := range []int{1024, 4096, 16384} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%d/%d", pageSize, seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, uint64(pageSize)))
				path := filepath.Join(memoryDir(t), "some.db")
				db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: pageSize, NoFreelistSync: seed == 3})
				if err != nil {
					t.Fatal(err)
				}
				for range 6 {
					if err := db.Update(func(tx *bolt.Tx) error { return writeAtRandom(r, tx) }); err != nil {
						t.Fatal(err)
					}
				}
				free := db.Stats().FreePageN + db.Stats().PendingPageN
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				pages, err := store.ScanPages(path)
				if err != nil {
					t.Fatal(err)
				}
				// bbolt itself loses pages when a bucket is deleted in the
				// transaction that changed it.
				lost := lostPages(t, path)
				if seed != 3 && (pages.Free != free || pages.Lost != lost) || pages.PageSize != pageSize {
					t.Errorf("got %+v, bbolt says %d free and %d lost pages of %d bytes", pages, free, lost, pageSize)
				}
				// A lost first meta page is no damage: the second one is whole.
				change(t, path, func(d []byte) []byte { clear(d[:200]); return d })
				if _, err := store.ScanPages(path); err != nil {
					t.Errorf("without the first meta page: %v", err)
				}
			})
		}
	}
}

// lostPages counts the pages that bbolt's check finds neither used nor free.
func lostPages(t *testing.T, path string) int {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			if !strings.HasSuffix(err.Error(), "unreachable unfreed") {
				t.Errorf("bbolt: check: %v", err)
			}
			lost++
		}
		return nil
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return lost
}

func writeAtRandom(r *rand.Rand, tx *bolt.Tx) error {
	for range 20 {
		b, err := tx.CreateBucketIfNotExists(fmt.Appendf(nil, "bucket%d", r.IntN(4)))
		if err == nil && r.IntN(3) == 0 {
			b, err = b.CreateBucketIfNotExists(fmt.Appendf(nil, "zz%d", r.IntN(3)))
		}
		if err != nil {
			return err
		}
		for range 1 + r.IntN(12) {
			key := fmt.Appendf(nil, "key%0*d", 1+r.IntN(60), r.IntN(2000))
			switch r.IntN(4) {
			case 0:
				err = b.Delete(key)
			case 1:
				err = b.Put(key, make([]byte, r.IntN(9000)))
			default:
				err = b.Put(key, make([]byte, r.IntN(100)))
			}
			if err != nil {
				return err
			}
		}
	}
	if r.IntN(4) == 0 {
		return tx.DeleteBucket(fmt.Appendf(nil, "bucket%d", r.IntN(3)))
	}
	return nil
}

// What is wrong is said, and names the page. Each case is one that bbolt would
// panic, fault or go round in circles on.
func TestScanNamesWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, 200)
	path := filepath.Join(dir, store.FileName)
	b, _ := openBolt(t, config(dir))
	for _, id := range []string{"s0000", "s0100"} { // some free pages
		if err := b.Commit(&store.Batch{Meta: storetest.Meta(storetest.Epoch, 2), Records: []*store.Record{storetest.Sandbox(id, 9)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const pageSize = 4096
	page := func(d []byte, id int) []byte { return d[id*pageSize : (id+1)*pageSize] }
	u64 := binary.NativeEndian.Uint64
	meta := page(good, 0)[16:]
	if other := page(good, 1)[16:]; u64(other[48:]) > u64(meta[48:]) {
		meta = other
	}
	freelist := int(u64(meta[32:]))
	free := map[uint64]bool{}
	for i := range int(binary.NativeEndian.Uint16(page(good, freelist)[10:])) {
		free[u64(page(good, freelist)[16+8*i:])] = true
	}
	branch := 0 // a branch page in use
	for id := 2; id < int(u64(meta[40:])); id++ {
		if p := page(good, id); u64(p) == uint64(id) && p[8] == 1 && p[10] > 3 && !free[uint64(id)] {
			branch = id
		}
	}
	if branch == 0 || len(free) < 2 {
		t.Fatalf("the file is too simple: branch %d, %d free pages", branch, len(free))
	}
	element := func(d []byte, id, i int) []byte { return page(d, id)[16+16*i:] }
	child := func(d []byte, i int) int { return int(u64(element(d, branch, i)[8:])) }
	leaf := child(good, 1)
	put64, put32, put16 := binary.NativeEndian.PutUint64, binary.NativeEndian.PutUint32, binary.NativeEndian.PutUint16
	for _, c := range []struct {
		name   string
		damage func(d []byte)
		want   string
	}{
		{"wrong id", func(d []byte) { put64(page(d, leaf), 7) }, "calls itself page 7"},
		{"wrong kind", func(d []byte) { put16(page(d, leaf)[8:], 4) }, "flags 0x4"},
		{"two kinds", func(d []byte) { put16(page(d, leaf)[8:], 3) }, "flags 0x3"},
		{"too many elements", func(d []byte) { put16(page(d, leaf)[10:], 5000) }, "can't hold 5000 elements"},
		{"branch without children", func(d []byte) { put16(page(d, branch)[10:], 0) }, "can't hold 0 elements"},
		{"overflow beyond the end", func(d []byte) { put32(page(d, leaf)[12:], 1<<30) }, "overflow"},
		{"element beyond the page", func(d []byte) { put32(element(d, leaf, 0)[12:], 1<<31) }, "element 0 is out of range"},
		{"element before its data", func(d []byte) { put32(element(d, leaf, 0)[4:], 3) }, "element 0 is out of range"},
		{"keys out of order", func(d []byte) { put32(element(d, leaf, 0)[4:], 16*5) }, "out of"},
		{"child beyond the end", func(d []byte) { put64(element(d, branch, 1)[8:], 1<<40) }, "out of range"},
		{"child is a meta page", func(d []byte) { put64(element(d, branch, 1)[8:], 1) }, "out of range"},
		{"circle", func(d []byte) { put64(element(d, branch, 1)[8:], uint64(branch)) }, "in use twice"},
		{"two parents", func(d []byte) { put64(element(d, branch, 1)[8:], uint64(child(d, 2))) }, "page"},
		{"children exchanged", func(d []byte) {
			a, b := child(d, 1), child(d, 2)
			put64(element(d, branch, 1)[8:], uint64(b))
			put64(element(d, branch, 2)[8:], uint64(a))
		}, "out of order"},
		{"free page in use", func(d []byte) { put64(page(d, freelist)[16:], uint64(leaf)) }, "is not free"},
		{"free page twice", func(d []byte) { copy(page(d, freelist)[16:24], page(d, freelist)[24:32]) }, "is not free"},
		{"freelist too long", func(d []byte) { put16(page(d, freelist)[10:], 60_000) }, "can't hold 60000 ids"},
		{"freelist of a huge count", func(d []byte) { put16(page(d, freelist)[10:], 0xFFFF); put64(page(d, freelist)[16:], 1<<60) }, "can't hold"},
	} {
		bad := append([]byte(nil), good...)
		c.damage(bad)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := store.ScanPages(path)
		if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one that says %q", c.name, err, c.want)
		}
	}
	if _, err := store.ScanPages(dir); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("a directory: got error %v", err)
	}
}
