package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// Whoever holds what it has read, such as for a client that reads slowly, holds
// up nobody: neither a commit for which the file must grow, which bbolt makes
// wait for open transactions (etcd-io/bbolt#854), nor other readers, nor a
// rescue.
func TestSlowReaderHoldsUpNobody(t *testing.T) {
	dir := memoryDir(t)
	filled(t, dir, 300)
	b, _ := openBolt(t, config(dir))
	events, err := b.Events(0, 1000)
	if err != nil || len(events) < 1000 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	snapshot, err := b.Load()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := b.Containers("c", 1000)
	if err != nil {
		t.Fatal(err)
	}
	place, ok := b.PodOf("c0001")

	done := make(chan error)
	go func() {
		batch := &store.Batch{Meta: storetest.Meta(storetest.Epoch, 2), Events: storetest.Events(1201, 500, 2)}
		for i := range 500 {
			c := storetest.Container(fmt.Sprintf("n%04d", i), "s0001", i)
			c.Rest = strings.Repeat(c.ID, 2000)
			batch.Records = append(batch.Records, c)
		}
		err := b.Commit(batch)
		if err == nil {
			_, err = b.Events(1200, 10)
		}
		if err == nil {
			err = b.Rescue(store.ErrIO)
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a commit waits for a reader that has returned")
	}
	// What was read is the reader's own: the pages it came from are gone.
	if events[999].Container.ID != "c1" || len(snapshot.Records) != 600 || snapshot.Records[599].Identity.Name != "main" ||
		ids[299] != "c0299" || !ok || place.Sandbox != "s0001" {
		t.Error("what was read has changed")
	}
}
