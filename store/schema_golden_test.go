package store_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// The files of schema version 1 as plegd first wrote them, and what is in them.
// They never change: every later version must read what nodes have on their
// disks. A later schema gets files of its own beside these.
const (
	schema1File    = "testdata/schema1.db"
	schema1Content = "testdata/schema1.json"
	schema1Sums    = "7b68f9a01b5a04368b87dad43db2f30419e48408890b8882547a4ec4a58845af cda2dad23fef2ce2f8f03b53dfa29ec42d64e03706003a920e2ea6c930c9054f" // SHA-256 of both
)

// makeSchema1 writes both files where there are none yet.
var makeSchema1 = flag.Bool("make-schema-1", false, "make the golden files of schema 1, which must not be there")

// goldenContent is all of a state in a form that JSON loses nothing of. A
// field that a later version adds is zero in it, as it must be when it is read
// from an old file.
type goldenContent struct {
	Meta       store.Meta
	Journal    store.Journal
	Records    []goldenRecord
	Tombstones []goldenRecord
	Asks       []*store.Ask
	Places     map[string]store.Placement
	Events     []goldenEvent
}

type goldenRecord struct {
	Record store.Record
	Rest   []byte // of the record, which is no text
}

type goldenEvent struct {
	Position string
	Event    plainEvent
}

// plainEvent is an event without its JSON form, which leaves out what only the
// store needs.
type plainEvent store.Event

// readGolden reads all of a store.
func readGolden(t *testing.T, b *store.Bolt) goldenContent {
	t.Helper()
	w := readWhole(t, b)
	if w.Snapshot.Dropped != 0 {
		t.Errorf("%d values can't be read", w.Snapshot.Dropped)
	}
	c := goldenContent{Meta: w.Snapshot.Meta, Journal: w.Journal, Asks: w.Snapshot.Asks, Places: map[string]store.Placement{}}
	records := func(rs []*store.Record) (out []goldenRecord) {
		for _, r := range rs {
			g := goldenRecord{*r, []byte(r.Rest)}
			g.Record.Rest = ""
			out = append(out, g)
		}
		return out
	}
	c.Records, c.Tombstones = records(w.Snapshot.Records), records(w.Snapshot.Tombstones)
	ids, err := b.Containers("", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		c.Places[id], _ = b.PodOf(id)
	}
	for _, e := range w.Events {
		g := goldenEvent{e.Position.String(), plainEvent(e)}
		g.Event.Position = timestamps.Position{}
		c.Events = append(c.Events, g)
	}
	return c
}

// schema1Batch has an entry for everything that schema 1 can say.
func schema1Batch() *store.Batch {
	b := &store.Batch{Meta: storetest.Meta(storetest.Epoch, 5_000_000_000), Asks: []*store.Ask{storetest.Ask("c1", 3), storetest.Ask("s2", 0)}}
	b.Meta.Next, b.Meta.Last = 23, 22
	b.Asks[1].Kind, b.Asks[1].Why = store.KindSandbox, 1<<store.Reasons-1
	nameless := storetest.Sandbox("s2", 1)
	nameless.Identity, nameless.IPs, nameless.HostNetwork, nameless.Reported = store.Identity{}, nil, true, store.ReportedNone
	odd := storetest.Container("c2", "s2", 4)
	odd.Identity.Name, odd.Exit = "näme\n\"€\"", store.Exit{}
	odd.Provisional, odd.Quiet, odd.ToldUnknown = true, true, true
	odd.LoweredAt, odd.Shown, odd.GaveUp = 77, 0x0e, store.ReasonNoIP|store.ReasonExit255
	b.Records = []*store.Record{storetest.Sandbox("s1", 0), nameless, storetest.Container("c1", "s1", 3), odd}
	b.Tombstones = []*store.Record{storetest.Tombstone("c0", "s1", 2)}
	for _, r := range append(b.Records, b.Tombstones...) {
		r.Rest = "\x0a\xff\x00status of " + r.ID // protobuf is no text
	}
	add := func(change func(e *store.Event)) {
		e := storetest.Event(uint64(len(b.Events)+1), int64(len(b.Events)))
		change(&e)
		b.Events = append(b.Events, e)
	}
	for _, typ := range []store.EventType{
		store.SandboxCreated, store.SandboxReady, store.SandboxNotReady, store.SandboxRemoved, store.SandboxChanged,
		store.ContainerCreated, store.ContainerStarted, store.ContainerDied, store.ContainerRemoved, store.ContainerChanged,
	} {
		add(func(e *store.Event) { e.Type = typ })
		add(func(e *store.Event) {
			*e = store.Event{Position: e.Position, Type: typ, SandboxID: "s2", ObservedAt: 3, Inferred: true, Volatile: true, Running: e.Running}
		})
	}
	add(func(e *store.Event) {
		e.Type, e.Change, e.State = store.ContainerChanged, store.ChangeAmended, "exited"
		e.Changed = []string{store.FieldState, store.FieldStartedAt, store.FieldFinishedAt, store.FieldExitCode, store.FieldReason, store.FieldIPs}
	})
	b.Events = append(b.Events, storetest.Skip(22, 30, 21))
	return b
}

// makeGolden makes the files, once.
func makeGolden(t *testing.T) {
	t.Helper()
	for _, path := range []string{schema1File, schema1Content} {
		if _, err := os.Stat(path); err == nil {
			t.Fatalf("%s is there and never changes", path)
		}
	}
	dir := t.TempDir()
	b, _ := openBolt(t, config(dir))
	if err := b.Commit(schema1Batch()); err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(readGolden(t, b), "", " ")
	if err := errors.Join(err, b.Close(), os.WriteFile(schema1Content, append(text, '\n'), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Dir(schema1File), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename("testdata/"+store.FileName, schema1File), os.Remove("testdata/"+store.LockName)); err != nil {
		t.Fatal(err)
	}
}

// What the first version wrote is read completely, and can be written to.
func TestSchema1CanBeRead(t *testing.T) {
	if *makeSchema1 {
		makeGolden(t)
	}
	data, err := os.ReadFile(schema1File)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(schema1Content)
	if err != nil {
		t.Fatal(err)
	}
	if sums := fmt.Sprintf("%x %x", sha256.Sum256(data), sha256.Sum256(text)); sums != schema1Sums {
		t.Fatalf("the golden files were changed, which makes this test worthless: %s", sums)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, store.FileName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	var want goldenContent
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	checkFile(t, dir)
	b, report := openBolt(t, config(dir))
	if report != (store.OpenReport{}) {
		t.Errorf("report is %+v", report)
	}
	got := readGolden(t, b)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the content differs (-golden +read):\n%s", diff)
	}
	if want.Meta.Schema != 1 || len(want.Records) != 4 || len(want.Tombstones) != 1 || len(want.Asks) != 2 || len(want.Places) != 3 || len(want.Events) != 22 {
		t.Error("the golden file has lost something")
	}
	if err := b.Rescue(store.ErrIO); err != nil { // a copy is one too
		t.Error(err)
	}
	batch := &store.Batch{
		Meta: got.Meta, Gone: []store.Key{{Kind: store.KindContainer, ID: "c1"}}, Tombstones: []*store.Record{storetest.Tombstone("c1", "s1", 3)},
		Forgotten: []string{"c0"}, Answered: []string{"c1"}, Events: storetest.Events(got.Journal.Last+1, 1, 9),
	}
	if err := b.Commit(batch); err != nil {
		t.Fatal(err)
	}
	s, err := b.Load()
	if err != nil || len(s.Records) != 3 || len(s.Tombstones) != 1 || len(s.Asks) != 1 || b.Journal().Entries != 23 {
		t.Errorf("after a commit: %+v, %+v, %v", s, b.Journal(), err)
	}
}
