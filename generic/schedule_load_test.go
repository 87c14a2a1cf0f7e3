package generic

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/plegd/plegd/arbiter"
)

// TestKnownEntitiesGoFirst: a storm of events about ids that nobody knows holds up
// neither its own pod nor others.
func TestKnownEntitiesGoFirst(t *testing.T) {
	storm := func(b *bench, pod func(i int) string) {
		for i := range 100 {
			a := ask(pod(i), fmt.Sprintf("u%02d", i))
			a.Unknown = true
			b.add(a, b.now)
		}
	}
	t.Run("in a pod", func(t *testing.T) {
		b := newBench(t, 8)
		storm(b, func(int) string { return "p" })
		first := b.starts("u00")
		b.ask("p", "known")
		b.now += tGap
		b.starts()
		b.end(first)
		b.end(b.starts("known"))
		b.end(b.starts("u01"))
	})
	t.Run("between pods", func(t *testing.T) {
		b := newBench(t, 1)
		storm(b, func(i int) string { return fmt.Sprint(i) })
		first := b.starts("u00")
		b.ask("p", "known")
		b.end(first)
		b.end(b.starts("known"))
	})
	t.Run("once it is known", func(t *testing.T) {
		b := newBench(t, 8)
		storm(b, func(int) string { return "p" })
		first := b.starts("u00")
		b.ask("p", "u77")
		b.end(first)
		b.end(b.starts("u77"))
		b.end(b.starts("u01"))
	})
}

// TestCallsPerSecond: a burst goes at once, the rest at the rate, a look counts
// twice, and what had to wait is counted once.
func TestCallsPerSecond(t *testing.T) {
	b := newBench(t, 8)
	b.calls = rate.NewLimiter(10, 4)
	look := ask("look", "look")
	look.Kind = arbiter.ActLook
	b.add(look, b.now)
	for i := range 5 {
		b.ask(fmt.Sprint(i), fmt.Sprint(i))
	}
	b.end(b.starts("0", "1", "look"))
	for _, id := range []string{"2", "3", "4"} {
		if _, wake := b.next(b.now); wake != b.now+100*time.Millisecond {
			t.Fatalf("wake in %v", wake-b.now)
		}
		b.now += 99 * time.Millisecond
		b.starts()
		b.now += time.Millisecond
		b.end(b.starts(id))
	}
	if b.throttled != 3 {
		t.Errorf("%d had to wait, want 3", b.throttled)
	}
}

// TestWhoMustWaitForItsPodTakesNoCalls: of many questions of one pod those that
// can't go yet leave the calls of this second to others.
func TestWhoMustWaitForItsPodTakesNoCalls(t *testing.T) {
	b := newBench(t, 8)
	b.calls = rate.NewLimiter(1, 4)
	for i := range 10 {
		b.ask("busy", fmt.Sprintf("b%d", i))
	}
	b.ask("other", "other")
	b.starts("b0", "other")
}

// TestManyPodsHangAtOnce: fifty pods of which nobody knew that they would hang,
// with two calls each, and one that is well and comes last.
func TestManyPodsHangAtOnce(t *testing.T) {
	b := newBench(t, DefaultInspections)
	for i := range 50 {
		b.ask(fmt.Sprint(i), fmt.Sprintf("h%02d", i))
		b.ask(fmt.Sprint(i), fmt.Sprintf("i%02d", i))
	}
	b.ask("well", "well")
	asked, hung := b.now, 0
	for ; ; b.now += time.Millisecond {
		start, _ := b.next(b.now)
		if slices.Contains(ids(start), "well") {
			break
		}
		if hung += len(start); b.now > asked+time.Minute {
			t.Fatal("never")
		}
	}
	if waited := b.now - asked; waited > DefaultBase {
		t.Errorf("%d calls that hang delayed another pod by %v", hung, waited)
	}
}

// TestSlowRuntimeIsNotAskedMoreAtOnce: where every call takes a while, those that
// wait are no reason to send more.
func TestSlowRuntimeIsNotAskedMoreAtOnce(t *testing.T) {
	const slots = 4
	b := newBench(t, slots)
	for i := range 100 {
		b.ask(fmt.Sprint(i), fmt.Sprint(i))
	}
	began := map[*task]time.Duration{}
	most, ended := 0, 0
	for range 3000 {
		for st, at := range began {
			if b.now-at >= 300*time.Millisecond {
				b.finish(st, b.now, false)
				delete(began, st)
				ended++
			}
		}
		start, _ := b.next(b.now)
		for _, st := range start {
			began[st] = b.now
		}
		if b.now > time.Hour+time.Second { // by then it has been seen
			most = max(most, len(began))
		}
		b.now += 10 * time.Millisecond
	}
	if most > slots || ended != 100 {
		t.Errorf("%d calls at once, %d slots; %d ended", most, slots, ended)
	}
}
