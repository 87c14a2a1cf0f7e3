package arbiter

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/store"
)

// TestLoopCommitsAtOnceWhenIdle: an event that comes to an idle loop is
// committed in the same moment (D1), and costs one transaction.
func TestLoopCommitsAtOnceWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync()
		for i := range 5 {
			time.Sleep(time.Second)
			before := time.Now()
			d.tell(fmt.Sprint("s", i))
			synctest.Wait()
			commits := d.seen.committed()
			if len(commits) != i+1 || !commits[i].at.Equal(before) || commits[i].events != 2 {
				t.Fatalf("event %d: commits %+v, want one more, of 2 events, at %v", i, commits, before)
			}
		}
		d.stop()
	})
}

// TestLoopWritesNothingWhenIdle: relists that find nothing, and time, cost no
// transaction (D1), but freshness moves all the same.
func TestLoopWritesNothingWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync(ready("s1"))
		synctest.Wait()
		before, _ := d.faulty.Commits()
		for range 100 {
			time.Sleep(time.Second)
			d.sync(ready("s1"))
		}
		if after, _ := d.faulty.Commits(); after != before {
			t.Errorf("%d commits in 100 idle seconds", after-before)
		}
		d.stop()
	})
}

// TestLoopSpacesCommitsUnderLoad: commits come no faster than the stated rate,
// after a burst, and what waits for the next one is grouped (D1).
func TestLoopSpacesCommitsUnderLoad(t *testing.T) {
	const rate, events, gap = 50, 4000, time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory(), func(c *Config) { c.CommitRate = rate })
		d.sync()
		time.Sleep(time.Minute) // the bucket is full
		begin := time.Now()
		for _, id := range names("s", events) {
			d.tell(id)
			time.Sleep(gap)
		}
		time.Sleep(time.Second)
		commits := d.seen.committed()
		total := 0
		for i, c := range commits {
			total += c.events
			if j := i - rate; j >= commitBurst && c.at.Sub(commits[j].at) < 900*time.Millisecond {
				t.Fatalf("commits %d to %d within %v", j, i, c.at.Sub(commits[j].at))
			}
		}
		took := time.Since(begin).Seconds()
		if most := int(took*rate) + commitBurst + 1; len(commits) > most {
			t.Errorf("%d commits in %.1f s, want at most %d", len(commits), took, most)
		}
		if total != 2*events {
			t.Errorf("%d events committed, want %d", total, 2*events)
		}
		// No event waits longer than the spacing.
		if last := commits[len(commits)-1].at; last.Sub(begin) > events*gap+time.Second/rate {
			t.Errorf("the last commit came %v after the first event", last.Sub(begin))
		}
		d.stop()
	})
}

// TestLoopPublishesInOrder: readers see an event and a record when they are
// durable and not before, and what says that something is fresh, confirmed or
// at fault only after the records that it rests on.
func TestLoopPublishesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync()
		sub, err := d.Subscribe(nil)
		if err != nil {
			t.Fatal(err)
		}
		at := d.Position()
		release := d.faulty.Hold()
		d.tell("s1")
		tick := d.list(ready("s1"))
		fresh := make(chan error, 1)
		go func() { fresh <- d.WaitFresh(t.Context(), tick-1) }()
		next := make(chan *store.Event, 1)
		go func() {
			ev, _ := sub.Next(t.Context())
			next <- ev
		}()
		synctest.Wait()
		select {
		case ev := <-next:
			t.Fatalf("%+v was published before its commit", ev)
		case <-fresh:
			t.Fatal("freshness moved before the commit of what the list found")
		default:
		}
		if _, err := d.Pod("uid-s1"); err == nil {
			t.Fatal("the record is readable before its commit")
		}
		if d.Position() != at {
			t.Fatalf("position moved to %v before the commit", d.Position())
		}
		release()
		synctest.Wait()
		if ev := <-next; ev == nil || ev.Type != store.SandboxCreated {
			t.Fatalf("first event %+v", ev)
		}
		if err := <-fresh; err != nil {
			t.Fatal(err)
		}
		pod, err := d.Pod("uid-s1")
		if err != nil || pod.Position != d.Position() {
			t.Fatalf("pod at %v, %v; journal at %v", pod.Position, err, d.Position())
		}
		d.stop()
	})
}

// TestLoopSnapshotAndJournalAgree: whenever it is read, a snapshot holds
// exactly what the journal up to its position tells, so reading on from there
// neither misses nor repeats.
func TestLoopSnapshotAndJournalAgree(t *testing.T) {
	eachPlace(t, store.Retention{}, func(t *testing.T, p place) {
		d := drive(t, p.open(t))
		d.sync()
		ids := names("s", 300)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for _, id := range ids {
				d.tell(id)
				time.Sleep(100 * time.Microsecond)
			}
		}()
		var snapshots []map[string]bool
		var positions []uint64
		for running := true; running; {
			select {
			case <-ended:
				running = false
			default:
			}
			pods, at := d.Pods()
			have := map[string]bool{}
			for _, pod := range pods {
				have[pod.Sandboxes[0].ID] = true
				if pod.Position != at {
					t.Fatalf("pod of %v in a snapshot of %v", pod.Position, at)
				}
			}
			snapshots, positions = append(snapshots, have), append(positions, at.Seq)
			time.Sleep(50 * time.Microsecond)
		}
		d.sync(items(ids)...)
		told := map[string]bool{}
		i := 0
		for _, ev := range append(d.after(d.beginning()), store.Event{}) {
			for ; i < len(positions) && (ev.Position.Seq == 0 || positions[i] < ev.Position.Seq); i++ {
				if len(told) != len(snapshots[i]) {
					t.Fatalf("at %d the journal has told of %d sandboxes, the snapshot has %d", positions[i], len(told), len(snapshots[i]))
				}
				for id := range snapshots[i] {
					if !told[id] {
						t.Fatalf("at %d the snapshot has %s, of which the journal has not told", positions[i], id)
					}
				}
			}
			told[ev.SandboxID] = true
		}
		d.stop()
	})
}

// TestLoopWakes: the core's wish to be woken is honoured on time, and once.
func TestLoopWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = 10 * time.Minute
		d := drive(t, memory(), func(c *Config) { c.Limits.TombstoneAge = int64(age) })
		d.sync(ready("s1"))
		d.sync()
		time.Sleep(2 * time.Second)
		d.sync() // the second witness
		if len(d.after(d.beginning())) != 4 {
			t.Fatalf("journal %+v", d.after(d.beginning()))
		}
		time.Sleep(age - 5*time.Second)
		if snap, _ := d.faulty.Load(); len(snap.Tombstones) != 1 {
			t.Fatalf("%d tombstones, want 1", len(snap.Tombstones))
		}
		time.Sleep(2 * time.Minute)
		if snap, _ := d.faulty.Load(); len(snap.Tombstones) != 0 {
			t.Error("the tombstone is still there after its age")
		}
		if n := len(d.seen.woken); n == 0 || n > 3 {
			t.Errorf("woken %d times in 12 minutes", n)
		}
		d.stop()
	})
}
