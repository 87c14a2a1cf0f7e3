package arbiter

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

func openBolt(t *testing.T, dir string) *store.Bolt {
	t.Helper()
	b, report, err := store.OpenBolt(store.BoltConfig{Dir: dir, Runtime: storetest.Runtime})
	if err != nil || report.Reason != nil {
		t.Fatalf("open: %v, %+v", err, report)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// TestD2FullDiskWithAFile (field case C54): a real file on a real disk that
// becomes full, is freed, and whose agent is then killed. What happened
// meanwhile comes as it happens, is written when there is room, without any new
// change, and is not told again by the next run.
func TestD2FullDiskWithAFile(t *testing.T) {
	disk := storetest.SmallDisk(t, "2m")
	dir := filepath.Join(disk, "state")
	b := openBolt(t, dir)
	d := drive(t, b)
	d.sync()
	ids := names("s", 20)
	d.tell(ids...)
	d.sync(items(ids)...)
	before := d.Position()

	free := storetest.Fill(t, disk)
	// The file has room of its own at first.
	for _, id := range names("t", 1000) {
		ids = append(ids, id)
		d.tell(id)
		d.sync(items(ids)...)
		if d.Health().StoreError != "" {
			break
		}
	}
	if h := d.Health(); h.StoreError == "" {
		t.Fatal("it never became full")
	}
	d.tell("u")
	ids = append(ids, "u")
	d.sync(items(ids)...)
	told := d.after(before)
	if last := told[len(told)-1]; last.SandboxID != "u" || !last.Volatile || gapless(t, told) != 0 {
		t.Errorf("the last event is %+v", last)
	}
	if pods, at := d.Pods(); len(pods) != len(ids) || at != d.Position() {
		t.Errorf("%d pods at %v, want %d", len(pods), at, len(ids))
	}
	free()
	d.works()
	for i := range told {
		told[i].Volatile = false
	}
	d.forgetTail()
	if diff := cmp.Diff(told, d.after(before)); diff != "" {
		t.Errorf("journal (-told +written):\n%s", diff)
	}
	end := d.Position()
	d.crash()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	d = drive(t, openBolt(t, dir))
	d.sync(items(ids)...)
	if again := d.after(end); len(again) != 1 || again[0].Type != store.SequenceSkipped {
		t.Errorf("after the restart comes %+v", again)
	}
	d.stop()
}

// TestD2KilledOnAFullDiskWithAFile: killed before there is room, the next run
// begins on the full disk, tells from memory under a new epoch what it finds,
// and the one after that, with room, goes on in the old epoch.
func TestD2KilledOnAFullDiskWithAFile(t *testing.T) {
	disk := storetest.SmallDisk(t, "2m")
	dir := filepath.Join(disk, "state")
	b := openBolt(t, dir)
	d := drive(t, b)
	d.sync()
	var h history
	free := storetest.Fill(t, disk)
	var ids []string
	for _, id := range names("t", 1000) {
		ids = append(ids, id)
		d.tell(id)
		d.sync(items(ids)...)
		if d.Health().StoreError != "" {
			break
		}
	}
	first := d.Position()
	h.add(t, d.after(d.beginning()))
	for range 2 {
		d.crash()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b = openBolt(t, dir)
		s := storetest.NewFaulty(b)
		s.FailBefore(-1, store.ErrFull) // a reservation alone may fit into the file
		d = drive(t, s)
		d.sync(items(ids)...)
		h.add(t, d.after(timestamps.Position{Epoch: d.Position().Epoch}))
		if d.Position().Epoch == first.Epoch {
			t.Errorf("at %v on a full disk", d.Position())
		}
	}
	d.crash()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	free()
	d = drive(t, openBolt(t, dir))
	d.sync(items(ids)...)
	h.add(t, d.after(d.beginning()))
	if d.Position().Epoch != first.Epoch || d.Position().Seq <= first.Seq {
		t.Errorf("at %v, want a later number than %v", d.Position(), first)
	}
	if _, err := d.Subscribe(&first); !errors.Is(err, store.ErrExpired) {
		t.Errorf("from %v, which was told and never written: %v", first, err)
	}
	d.stop()
}
