package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// change rewrites a file's bytes.
func change(t testing.TB, path string, fn func(data []byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, fn(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// damages are the ways in which a whole file goes bad.
var damages = map[string]func(data []byte) []byte{
	"cut to 1 byte":          func(d []byte) []byte { return d[:1] },
	"cut to one page":        func(d []byte) []byte { return d[:4096] },
	"cut to three pages":     func(d []byte) []byte { return d[:3*4096] },
	"cut to half":            func(d []byte) []byte { return d[:len(d)/2] },
	"zeroed":                 func(d []byte) []byte { clear(d); return d },
	"zeroed from the middle": func(d []byte) []byte { clear(d[8192:]); return d },
	"both metas overwritten": func(d []byte) []byte { copy(d, bytes.Repeat([]byte("x"), 8192)); return d },
	"a text file":            func([]byte) []byte { return []byte("this is no database\n") },
	"a long text file":       func([]byte) []byte { return bytes.Repeat([]byte("this is no database\n"), 10_000) },
	"random bytes": func(d []byte) []byte {
		_, _ = rand.NewChaCha8([32]byte{1}).Read(d)
		return d
	},
	"one data page overwritten": func(d []byte) []byte {
		at := bytes.LastIndex(d, []byte("pod-s0100")) &^ 4095
		copy(d[at:], bytes.Repeat([]byte{0xa5}, 4096))
		return d
	},
	// bbolt's check goes round in circles on this.
	"meta newer than its data": func(d []byte) []byte {
		return changeMeta(d, func(meta []byte) { copy(meta[16:24], meta[32:40]) }) // the root is where the freelist is
	},
	"meta of more pages": func(d []byte) []byte {
		d = append(d, make([]byte, 4096)...)
		return changeMeta(d, func(meta []byte) { binary.NativeEndian.PutUint64(meta[40:], uint64(len(d)/4096)) })
	},
	"every page is the root": func(d []byte) []byte {
		for at := 3 * 4096; at < len(d); at += 4096 {
			copy(d[at+8:at+4096], d[2*4096+8:3*4096])
		}
		return d
	},
}

func TestDamagedFileIsSetAsideAndAFreshOneStarted(t *testing.T) {
	now := time.Date(2026, 2, 3, 4, 5, 6, 0, time.FixedZone("", 3600))
	sound := t.TempDir()
	filled(t, sound, 200)
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			dir := memoryDir(t)
			if err := os.CopyFS(dir, os.DirFS(sound)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, store.FileName)
			change(t, path, damage)
			bad, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.OpenBoltReadOnly(dir); !errors.Is(err, store.ErrDamaged) {
				t.Errorf("read only: got error %v, want ErrDamaged", err)
			}
			cfg := config(dir)
			cfg.Now = func() time.Time { return now }
			b, report := openBolt(t, cfg)
			aside := path + ".damaged-20260203T030506Z"
			if !report.Fresh || report.SetAside != aside {
				t.Errorf("report is %+v", report)
			}
			mustMention(t, report.Reason, store.ErrDamaged, path)
			t.Log(report.Reason)
			if kept, err := os.ReadFile(aside); err != nil || !bytes.Equal(kept, bad) {
				t.Errorf("the file set aside isn't the damaged one: %v", err)
			}
			s, err := b.Load()
			if err != nil || len(s.Records) != 0 || !s.Meta.Epoch.IsZero() {
				t.Errorf("fresh state is %+v, %v", s, err)
			}
			if err := b.Commit(&store.Batch{Meta: storetest.Meta(storetest.Epoch, 1), Events: storetest.Events(1, 3, 1)}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEmptiedFileCountsAsNew(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, 5)
	path := filepath.Join(dir, store.FileName)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	_, report := openBolt(t, config(dir))
	if !report.Fresh || report.SetAside != "" {
		t.Errorf("report is %+v", report)
	}
	mustMention(t, report.Reason, store.ErrDamaged, path, "empty")
}

func TestSoundFileOfAnotherProgramIsSetAside(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	rawUpdate(t, dir, func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("meta"))
		if err != nil {
			return err
		}
		return b.Put([]byte("somebody"), []byte("else"))
	})
	_, report := openBolt(t, config(dir))
	if !report.Fresh || report.SetAside == "" {
		t.Errorf("report is %+v", report)
	}
	mustMention(t, report.Reason, store.ErrDamaged, "not a state of plegd")
}

func TestDamagedMetaCondemnsTheFile(t *testing.T) {
	for _, key := range []string{"meta", "schema"} {
		for name, value := range map[string][]byte{"garbage": []byte("garbage"), "empty": {}} {
			dir := t.TempDir()
			filled(t, dir, 2)
			rawUpdate(t, dir, func(tx *bolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte(key), value) })
			_, report := openBolt(t, config(dir))
			if !report.Fresh || report.SetAside == "" || !errors.Is(report.Reason, store.ErrDamaged) {
				t.Errorf("%s of %s: report is %+v", name, key, report)
			}
		}
	}
}

// Only what is damaged is lost, and only once: the next commit clears it away.
func TestSingleDamagedValuesAreDropped(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, 20)
	seq := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	rawUpdate(t, dir, func(tx *bolt.Tx) error {
		containers := tx.Bucket([]byte("containers"))
		return errors.Join(
			containers.Put([]byte("c0003"), []byte("garbage")),
			containers.Put([]byte("c0004"), containers.Get([]byte("c0005"))), // sound, but another's
			tx.Bucket([]byte("sandboxes")).Put([]byte("s0007"), nil),
			tx.Bucket([]byte("asks")).Put([]byte("c0008"), []byte{1, 2, 3, 4, 5, 6}),
			tx.Bucket([]byte("places")).Put([]byte("c0009"), []byte("?")),
			tx.Bucket([]byte("journal")).Put(seq(30), []byte("garbage")),
		)
	})
	report, err := store.Verify(dir)
	var names []string
	for _, d := range report.Damaged {
		names = append(names, d.Table+" "+d.Key)
	}
	slices.Sort(names)
	want := []string{`asks "c0008"`, `containers "c0003"`, `containers "c0004"`, "journal 30", `places "c0009"`, `sandboxes "s0007"`}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("Verify: got %q and error %v, want %q", names, err, want)
	}
	b, opened := openBolt(t, config(dir))
	if opened != (store.OpenReport{Damaged: 6}) {
		t.Errorf("report is %+v", opened)
	}
	s, err := b.Load()
	if err != nil || len(s.Records) != 37 || len(s.Asks) != 19 || s.Dropped != 4 {
		t.Errorf("got %d records, %d asks, %d dropped and error %v", len(s.Records), len(s.Asks), s.Dropped, err)
	}
	// A damaged entry of the journal is a loss, and is told as one.
	if got, err := b.Events(20, 100); err != nil || len(got) != 9 {
		t.Errorf("got %d events before the damaged one and error %v, want 9", len(got), err)
	}
	_, err = b.Events(29, 100)
	mustMention(t, err, store.ErrExpired, "30")
	if got, err := b.Events(30, 100); err != nil || len(got) != 50 {
		t.Errorf("got %d events behind the damaged one and error %v, want 50", len(got), err)
	}
	// The damaged container is seen again by a relist and written anew.
	if err := b.Commit(&store.Batch{Meta: s.Meta, Records: []*store.Record{storetest.Container("c0003", "s0003", 3)}}); err != nil {
		t.Fatal(err)
	}
	s, err = b.Load()
	if err != nil || len(s.Records) != 38 || s.Dropped != 0 {
		t.Errorf("after a commit: got %d records, %d dropped and error %v", len(s.Records), s.Dropped, err)
	}
}

func TestTheLastTwoDamagedFilesAreKept(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, store.FileName)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var aside []string
	for i := range 5 {
		if err := os.WriteFile(path, fmt.Append(nil, "damaged ", i), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := config(dir)
		cfg.Now = func() time.Time { return now.Add(time.Duration(i/2) * time.Hour) } // some at the same second
		b, report, err := store.OpenBolt(cfg)
		if err != nil {
			t.Fatal(err)
		}
		aside = append(aside, report.SetAside)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := filepath.Glob(path + ".damaged-*")
	if want := aside[3:]; err != nil || !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
}

// A start after a clean stop is spared the check.
func TestCheckIsForUncleanStops(t *testing.T) {
	dir := t.TempDir()
	calls := 0
	cfg := config(dir)
	cfg.Check = func(string) error { calls++; return nil }
	for i, c := range []struct {
		next  uint64 // as the last commit leaves it: 0 unless it is that of a clean stop
		calls int    // of the start before
	}{{0, 0}, {81, 1}, {0, 1}, {0, 2}} {
		b, report, err := store.OpenBolt(cfg)
		if err != nil || calls != c.calls || report.CheckError != nil {
			t.Errorf("start %d: %d checks, want %d; %+v, %v", i, calls, c.calls, report, err)
		}
		meta := storetest.Meta(storetest.Epoch, int64(i))
		meta.Next = c.next
		if err := errors.Join(b.Commit(&store.Batch{Meta: meta}), b.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheckHook(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, 2)
	cfg := config(dir)
	calls := 0
	result := errors.New("child: no such file")
	cfg.Check = func(path string) error {
		calls++
		if path != filepath.Join(dir, store.FileName) {
			t.Errorf("asked to check %s", path)
		}
		return result
	}
	b, report := openBolt(t, cfg)
	if calls != 1 || report.Fresh || !errors.Is(report.CheckError, result) {
		t.Errorf("a check that couldn't run: %d calls, report %+v", calls, report)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	result = fmt.Errorf("page 7: %w", store.ErrDamaged)
	_, report = openBolt(t, cfg)
	if calls != 2 || !report.Fresh || report.SetAside == "" {
		t.Errorf("a check that condemned: %d calls, report %+v", calls, report)
	}
	mustMention(t, report.Reason, store.ErrDamaged, "page 7")
}

// Whatever bytes change, opening ends, and what it lets through can be used:
// no panic, no fault, no endless walk, no value misread.
func TestRandomDamageNeverGetsThrough(t *testing.T) {
	dir := memoryDir(t)
	filled(t, dir, 30)
	path := filepath.Join(dir, store.FileName)
	b, _ := openBolt(t, config(dir)) // some history, so that there are free pages
	for i := range 10 {
		batch := &store.Batch{Meta: storetest.Meta(storetest.Epoch, 1), Events: storetest.Events(uint64(121+10*i), 10, 1)}
		batch.Records = append(batch.Records, storetest.Sandbox(fmt.Sprintf("s%04d", i), 99))
		if err := b.Commit(batch); err != nil {
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
	rounds := 150
	if testing.Short() {
		rounds = 50
	}
	r := rand.New(rand.NewPCG(1, 2))
	outcome := map[string]int{}
	for i := range rounds {
		bad := damageAtRandom(r, bytes.Clone(good))
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		outcome[useDamaged(t, dir, i)]++
	}
	t.Log(outcome)
	if outcome["set aside"] == 0 || outcome["values dropped"] == 0 {
		t.Error("the damage was too tame")
	}
}

// damageAtRandom changes a page, some bytes or some bits, mostly where the
// structure of pages is.
func damageAtRandom(r *rand.Rand, data []byte) []byte {
	page := r.IntN(len(data)/4096) * 4096
	switch r.IntN(6) {
	case 0:
		return data[:r.IntN(len(data))]
	case 1: // a page of noise
		for i := range 4096 {
			data[page+i] = byte(r.Uint32())
		}
	case 2: // a page of another place: a misdirected write
		copy(data[page:page+4096], data[r.IntN(len(data)/4096)*4096:])
	case 3: // bits in page heads and elements
		for range 1 + r.IntN(3) {
			data[page+r.IntN(200)] ^= 1 << r.IntN(8)
		}
	case 4: // a small number in a head, as a wrong count or page would be
		data[page+r.IntN(64)] = byte(r.IntN(8))
	default:
		data[page+r.IntN(4096)] ^= 1 << r.IntN(8)
	}
	return data
}

// useDamaged opens a file and does everything with it.
func useDamaged(t *testing.T, dir string, round int) string {
	t.Helper()
	b, report, err := store.OpenBolt(config(dir))
	if err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Errorf("round %d: Close: %v", round, err)
		}
	}()
	s, err := b.Load()
	if err != nil {
		t.Fatalf("round %d: Load: %v", round, err)
	}
	for _, rec := range s.Records { // nothing is misread
		n := int(rec.Known)
		want := storetest.Sandbox(rec.ID, int(rec.Reported))
		if rec.Kind == store.KindContainer {
			want = storetest.Container(rec.ID, rec.Sandbox, n-1)
		}
		if !rec.SameContent(want) {
			t.Fatalf("round %d: misread %+v", round, rec)
		}
	}
	for after := uint64(0); after < b.Journal().Last; {
		events, err := b.Events(after, 7)
		if errors.Is(err, store.ErrExpired) {
			after++
			continue
		} else if err != nil || len(events) == 0 {
			t.Fatalf("round %d: Events(%d): %d events, %v", round, after, len(events), err)
		}
		for _, e := range events {
			if e.Container.ID != "c1" || e.Position.Seq <= after {
				t.Fatalf("round %d: misread %+v", round, e)
			}
			after = e.Position.Seq
		}
	}
	batch := &store.Batch{Meta: storetest.Meta(storetest.Epoch, 2), Events: storetest.Events(b.Journal().Last+1, 50, 2)}
	for i := range 60 {
		batch.Records = append(batch.Records, storetest.Container(fmt.Sprintf("c%04d", i), "s", i))
		batch.Gone = append(batch.Gone, store.Key{Kind: store.KindSandbox, ID: fmt.Sprintf("s%04d", i)})
	}
	for range 2 {
		if err := b.Commit(batch); err != nil {
			t.Fatalf("round %d: Commit after %+v: %v", round, report, err)
		}
	}
	switch {
	case report.SetAside != "" || report.Fresh:
		return "set aside"
	case report.Damaged > 0:
		return "values dropped"
	default:
		return "harmless"
	}
}
