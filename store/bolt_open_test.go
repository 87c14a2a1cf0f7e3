package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// openBolt opens a state that must be openable and closes it after the test.
func openBolt(t testing.TB, cfg store.BoltConfig) (*store.Bolt, store.OpenReport) {
	t.Helper()
	b, report, err := store.OpenBolt(cfg)
	if err != nil {
		t.Fatalf("OpenBolt: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b, report
}

func config(dir string) store.BoltConfig {
	return store.BoltConfig{Dir: dir, Runtime: storetest.Runtime}
}

// contents reads all files of a directory, to see that nothing was touched.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if e.Name() != store.LockName {
			got[e.Name()] = string(data)
		}
	}
	return got
}

// mustMention fails unless the error wraps what it should and its message says
// what a person needs to know.
func mustMention(t testing.TB, err, want error, words ...string) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want one that wraps %q", err, want)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q doesn't mention %q", err, w)
		}
	}
}

func TestBoltModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "state")
	b, _ := openBolt(t, config(dir))
	for path, want := range map[string]os.FileMode{dir: 0o700, b.Path(): 0o600, filepath.Join(dir, store.LockName): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got mode %v and error %v, want %v", path, info.Mode(), err, want)
		}
	}
	if got := len(contents(t, dir)); got != 1 {
		t.Errorf("%d files besides the lock, want the state alone", got)
	}
}

func TestBoltConfigContradictions(t *testing.T) {
	for name, change := range map[string]func(*store.BoltConfig){
		"no directory":           func(c *store.BoltConfig) { c.Dir = "" },
		"negative timeout":       func(c *store.BoltConfig) { c.Timeout = -time.Second },
		"tiny size":              func(c *store.BoltConfig) { c.MaxSize = 4096 },
		"negative age":           func(c *store.BoltConfig) { c.Retention.Age = -1 },
		"negative entries":       func(c *store.BoltConfig) { c.Retention.Entries = -1 },
		"negative bytes":         func(c *store.BoltConfig) { c.Retention.Bytes = -1 },
		"journal above the size": func(c *store.BoltConfig) { c.MaxSize = 64 << 20 },
	} {
		cfg := config(filepath.Join(t.TempDir(), "state"))
		change(&cfg)
		if _, _, err := store.OpenBolt(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := os.Stat(cfg.Dir); cfg.Dir != "" && err == nil {
			t.Errorf("%s: the directory was made all the same", name)
		}
	}
}

func TestBoltLockedNamesFileAndHolder(t *testing.T) {
	dir := t.TempDir()
	first, _ := openBolt(t, config(dir))
	pid := fmt.Sprint(os.Getpid())
	_, _, err := store.OpenBolt(config(dir))
	mustMention(t, err, store.ErrLocked, "state directory "+dir+":", "pid "+pid)
	_, err = store.OpenBoltReadOnly(dir)
	mustMention(t, err, store.ErrLocked, first.Path(), "pid "+pid)
	_, err = store.Verify(first.Path())
	mustMention(t, err, store.ErrLocked, first.Path(), "pid "+pid)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	openBolt(t, config(dir)) // the lock died with its holder
}

// While somebody reads the file offline, an agent that starts waits for bbolt's
// lock a little and then says what is the matter; the file is not damaged.
func TestBoltStartWhileAReaderHoldsTheFile(t *testing.T) {
	dir := t.TempDir()
	b, _ := openBolt(t, config(dir))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := store.OpenBoltReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(dir)
	cfg.Timeout = 100 * time.Millisecond
	_, _, err = store.OpenBolt(cfg)
	mustMention(t, err, store.ErrLocked, b.Path())
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	_, report := openBolt(t, cfg)
	if report != (store.OpenReport{}) {
		t.Errorf("report is %+v", report)
	}
}

func TestBoltUnwritable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, place := range map[string]string{
		"below a file":       filepath.Join(file, "state"),
		"a file":             file,
		"a place in /proc":   "/proc/plegd-state",
		"a directory in use": "/proc/self",
	} {
		_, _, err := store.OpenBolt(config(place))
		mustMention(t, err, store.ErrUnwritable, place)
		t.Logf("%s: %v", name, err)
	}
	if os.Geteuid() != 0 {
		closed := filepath.Join(dir, "closed")
		if err := os.Mkdir(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		_, _, err := store.OpenBolt(config(closed))
		mustMention(t, err, store.ErrUnwritable, closed)
	}
}

// rawUpdate changes a closed state file behind the store's back.
func rawUpdate(t testing.TB, dir string, change func(tx *bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, store.FileName), 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(change); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// filled makes a closed state with n pods of one container and some journal.
func filled(t testing.TB, dir string, n int) {
	t.Helper()
	b, _, err := store.OpenBolt(config(dir))
	if err != nil {
		t.Fatal(err)
	}
	batch := &store.Batch{Meta: storetest.Meta(storetest.Epoch, 1), Events: storetest.Events(1, 4*n, 1)}
	for i := range n {
		s, c := fmt.Sprintf("s%04d", i), fmt.Sprintf("c%04d", i)
		batch.Records = append(batch.Records, storetest.Sandbox(s, i), storetest.Container(c, s, i))
		batch.Asks = append(batch.Asks, storetest.Ask(c, 1))
	}
	if err := errors.Join(b.Commit(batch), b.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestBoltNewerSchemaIsRefusedUntouched(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, 3)
	rawUpdate(t, dir, func(tx *bolt.Tx) error {
		// Whatever else a later version may do to its meta.
		return errors.Join(tx.Bucket([]byte("meta")).Put([]byte("schema"), store.EncodeSchema(7)), tx.Bucket([]byte("meta")).Put([]byte("meta"), []byte("new form")))
	})
	before := contents(t, dir)
	_, _, err := store.OpenBolt(config(dir))
	mustMention(t, err, store.ErrNewerSchema, filepath.Join(dir, store.FileName), "schema is 7", "up to 1")
	_, err = store.OpenBoltReadOnly(dir)
	mustMention(t, err, store.ErrNewerSchema, "schema is 7")
	if after := contents(t, dir); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("the file was touched")
	}
}

func TestBoltForeignRuntimeIsRefusedUntouched(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir, 3)
	before := contents(t, dir)
	for name, change := range map[string]func(*store.RuntimeID){
		"endpoint": func(r *store.RuntimeID) { r.Endpoint = "unix:///other.sock" },
		"node":     func(r *store.RuntimeID) { r.Node = "node-2" },
		"no node":  func(r *store.RuntimeID) { r.Node = "" },
		"name":     func(r *store.RuntimeID) { r.Name = "otherd" },
	} {
		cfg := config(dir)
		change(&cfg.Runtime)
		_, _, err := store.OpenBolt(cfg)
		t.Logf("%s: %v", name, err)
		mustMention(t, err, store.ErrForeign, filepath.Join(dir, store.FileName), storetest.Runtime.String(), cfg.Runtime.String())
	}
	if after := contents(t, dir); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("the file was touched")
	}
	for name, change := range map[string]func(*store.RuntimeID){
		"the same":           func(*store.RuntimeID) {},
		"name not known yet": func(r *store.RuntimeID) { r.Name = "" },
		"nothing given":      func(r *store.RuntimeID) { *r = store.RuntimeID{} },
	} {
		cfg := config(dir)
		change(&cfg.Runtime)
		b, report, err := store.OpenBolt(cfg)
		if err != nil || report.Fresh {
			t.Fatalf("%s: got report %+v and error %v", name, report, err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Where no runtime has ever answered, the endpoint may have been a mistake: the state
// is nobody's yet.
func TestBoltOfNoRuntimeYet(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Runtime = store.RuntimeID{Endpoint: "unix:///typo.sock", Node: "node-1"}
	for _, endpoint := range []string{"unix:///typo.sock", "unix:///right.sock"} {
		cfg.Runtime.Endpoint = endpoint
		b, _, err := store.OpenBolt(cfg)
		if err != nil {
			t.Fatalf("%s: %v", endpoint, err)
		}
		err = b.Commit(&store.Batch{Meta: store.Meta{Runtime: cfg.Runtime, Epoch: timestamps.Epoch{1}}})
		if err = errors.Join(err, b.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBoltReadOnly(t *testing.T) {
	dir := t.TempDir()
	if _, err := store.OpenBoltReadOnly(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing there: got error %v", err)
	}
	if _, err := store.Verify(filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing there: got error %v", err)
	}
	filled(t, dir, 20)
	before := contents(t, dir)
	r, err := store.OpenBoltReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	second, err := store.OpenBoltReadOnly(r.Path()) // readers don't keep each other out
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []*store.Bolt{r, second} {
		s, err := b.Load()
		if err != nil || len(s.Records) != 40 || s.Meta.Epoch != storetest.Epoch || b.Journal().Entries != 80 {
			t.Errorf("got %+v, %+v and error %v", s, b.Journal(), err)
		}
		if got, err := b.Events(70, 100); err != nil || len(got) != 10 {
			t.Errorf("got %d events and error %v", len(got), err)
		}
		if p, ok := b.PodOf("c0003"); !ok || p.Sandbox != "s0003" || p.Pod != "uid-s0003" {
			t.Errorf("got placement %+v, %v", p, ok)
		}
		if err := b.Commit(&store.Batch{}); err == nil {
			t.Error("a commit succeeded")
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	report, err := store.Verify(dir)
	if err != nil || report.Sandboxes != 20 || report.Containers != 20 || report.Asks != 20 || report.Journal.Last != 80 || len(report.Damaged) != 0 || report.Pages.Lost != 0 {
		t.Errorf("got %+v and error %v", report, err)
	}
	if after := contents(t, dir); fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("reading changed something")
	}
}

// A file left over from a start that died is no obstacle and no state.
func TestBoltLeftoverOfADeadStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, store.FileName+".new"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, report := openBolt(t, config(dir))
	if !report.Fresh || report.Reason != nil || len(contents(t, dir)) != 1 {
		t.Errorf("report is %+v", report)
	}
}
