package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/checkchild"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// checkEnv makes this test binary a child that has bbolt check a file.
const checkEnv = "PLEGD_TEST_CHECK"

// checkByBbolt has bbolt check a file in a child process, since on damaged ones
// that may never end.
func checkByBbolt(t *testing.T, path string) error {
	t.Helper()
	c := checkchild.Self(time.Minute, "-test.run=^$")
	c.Env = []string{checkEnv + "=1"}
	return c.Check(t.Context(), path)
}

// changeMeta changes the meta page of the last transaction and its checksum.
func changeMeta(d []byte, change func(meta []byte)) []byte {
	meta := d[16:80]
	if u64 := binary.NativeEndian.Uint64; u64(d[4096+16+48:]) > u64(meta[48:]) {
		meta = d[4096+16 : 4096+80]
	}
	change(meta)
	h := fnv.New64a()
	_, _ = h.Write(meta[:56])
	binary.NativeEndian.PutUint64(meta[56:], h.Sum64())
	return d
}

// A meta page that is newer than some of the pages it points to is found out
// by our own scan wherever bbolt's check would find it, and where that would
// never return: what the scan lets through, bbolt's check finds sound.
func TestMetaNewerThanItsData(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, 60)
	b, _ := openBolt(t, config(dir))
	var images [][]byte
	for i := range 6 {
		batch := &store.Batch{Meta: storetest.Meta(storetest.Epoch, 1), Events: storetest.Events(uint64(241+10*i), 10, 1)}
		batch.Records = append(batch.Records, storetest.Sandbox(fmt.Sprintf("s%04d", i), 99))
		for k := range 30 * (i % 2) {
			batch.Records = append(batch.Records, storetest.Container(fmt.Sprintf("x%d-%d", i, k), "s", 1))
		}
		if err := b.Commit(batch); err != nil {
			t.Fatal(err)
		}
		image, err := os.ReadFile(b.Path())
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, image)
	}
	r := rand.New(rand.NewPCG(3, 4))
	path := filepath.Join(t.TempDir(), store.FileName)
	condemned, passed := 0, 0
	for i, old := range images {
		for j, newer := range images[i+1:] {
			for share := range 4 { // of the pages that are as new as the meta
				if share == 3 && j > 0 { // all of them are: one of each will do
					continue
				}
				d := append(bytes.Clone(old), make([]byte, len(newer)-len(old))...)
				copy(d, newer[:8192])
				for at := 8192; at < len(d); at += 4096 {
					if r.IntN(3) < share {
						copy(d[at:at+4096], newer[at:])
					}
				}
				if err := os.WriteFile(path, d, 0o600); err != nil {
					t.Fatal(err)
				}
				_, err := store.Verify(path)
				switch {
				case errors.Is(err, store.ErrDamaged):
					condemned++
				case err != nil:
					t.Fatal(err)
				default:
					passed++
					if err := checkByBbolt(t, path); err != nil {
						t.Errorf("bbolt condemns what we let pass: %v", err)
					}
				}
			}
		}
	}
	t.Logf("%d condemned, %d passed", condemned, passed)
	if passed < len(images)-1 || condemned < len(images) {
		t.Errorf("%d condemned and %d passed, want some of each", condemned, passed)
	}
}
