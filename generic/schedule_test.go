package generic

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"

	"github.com/plegd/plegd/arbiter"
)

const (
	tGap      = 100 * time.Millisecond
	tPatience = time.Second
	tHold     = 20 * time.Second
)

func ask(pod, id string) arbiter.Action {
	return arbiter.Action{Kind: arbiter.ActStatus, ID: id, PodKey: pod}
}

// unlimited is a bucket that is never empty.
func unlimited() *rate.Limiter { return rate.NewLimiter(rate.Inf, 0) }

// ids returns what was started, sorted.
func ids(start []*task) (all []string) {
	for _, t := range start {
		all = append(all, t.action.ID)
	}
	slices.Sort(all)
	return all
}

// bench drives a scheduler by hand.
type bench struct {
	*scheduler
	t   testing.TB
	now time.Duration
}

func newBench(t testing.TB, slots int) *bench {
	return &bench{scheduler: newScheduler(slots, tGap, tPatience, tHold, unlimited()), t: t, now: time.Hour}
}

// starts asserts what is started at the present moment.
func (b *bench) starts(want ...string) []*task {
	b.t.Helper()
	start, _ := b.next(b.now)
	if got := ids(start); !slices.Equal(got, want) {
		b.t.Fatalf("at %v: started %v, want %v", b.now-time.Hour, got, want)
	}
	return start
}

func (b *bench) ask(pod, id string) { b.add(ask(pod, id), b.now) }

func (b *bench) end(tasks []*task) {
	for _, t := range tasks {
		b.finish(t, b.now, false)
	}
}

// The first question goes at once, a burst costs one more round.
func TestRoundsOfOnePod(t *testing.T) {
	b := newBench(t, 8)
	b.ask("p", "a")
	b.end(b.starts("a"))
	for range 5 {
		b.now += time.Millisecond
		b.ask("p", "a") // one that waits already is not asked twice
	}
	b.ask("p", "b")
	b.ask("other", "x")
	b.end(b.starts("x"))
	if _, wake := b.next(b.now); wake != time.Hour+tGap {
		t.Errorf("wake at %v", wake-time.Hour)
	}
	b.now = time.Hour + tGap
	first := b.starts("a")
	b.now += time.Millisecond
	b.end(first)
	b.end(b.starts("b")) // waited when the round began, so it belongs to it
	b.starts()
}

// What arrives together goes together, one after the other.
func TestOneRoundTakesAllThatWaits(t *testing.T) {
	b := newBench(t, 8)
	for _, id := range []string{"a", "b", "c"} {
		b.ask("p", id)
	}
	for _, id := range []string{"a", "b", "c"} {
		started := b.starts(id)
		b.now += 3 * time.Millisecond
		b.end(started)
	}
	if waiting, running, _ := b.depth(); waiting+running != 0 {
		t.Errorf("%d wait, %d run", waiting, running)
	}
	b.now += tGap
	b.next(b.now)
	if len(b.pods)+len(b.rounds)+len(b.running) != 0 {
		t.Errorf("left over: %d pods, %d rounds", len(b.pods), len(b.rounds))
	}
}

// A pod of very many containers costs as much for each as a small one: when
// one is done, no more than the next is touched, in each lane.
func TestHugePodTriesOneTaskPerFinish(t *testing.T) {
	const containers = 2000
	b := newBench(t, 8)
	for i := range containers {
		b.ask("huge", fmt.Sprintf("%04d", i))
	}
	for i := range containers {
		started := b.starts(fmt.Sprintf("%04d", i))
		if waiting, _, _ := b.depth(); waiting != containers-i-1 {
			t.Fatalf("after %d: %d wait", i, waiting)
		}
		b.now += time.Millisecond
		b.end(started)
		if len(b.waiting) > len(b.lanes) {
			t.Fatalf("after %d: %d try again at once", i, len(b.waiting))
		}
	}
}

// A task that was let try again and finds that it still has to wait passes its
// turn on: held back ones don't block those behind them.
func TestUnblockedTaskPassesItsTurnOn(t *testing.T) {
	b := newBench(t, 8)
	b.ask("p", "first")
	first := b.starts("first")
	for _, id := range []string{"held1", "held2", "well1", "well2"} {
		b.ask("p", id)
	}
	b.starts()
	for _, id := range []string{"held1", "held2"} {
		b.slow[ask("p", id).Key()] = slowMark{seen: b.now, until: b.now + tHold}
	}
	b.end(first)
	b.end(b.starts("well1"))
	b.end(b.starts("well2"))
	b.now += tHold
	b.end(b.starts("held1", "held2"))
}

// The same question asked again while it runs waits for that one alone, and
// doesn't keep the pod's other room from being used.
func TestSameQuestionWaitsForItself(t *testing.T) {
	b := newBench(t, 8)
	b.ask("p", "a")
	a := b.starts("a")
	b.now += tPatience
	b.ask("p", "a")
	b.ask("p", "a")
	b.ask("p", "b")
	b.end(b.starts("b"))
	b.end(a)
	b.now += tGap
	b.end(b.starts("a")) // once for all that asked meanwhile
	b.now += tGap
	b.starts()
	if waiting, running, _ := b.depth(); waiting+running+len(b.same) != 0 {
		t.Errorf("%d wait, %d run, %d wait for the same", waiting, running, len(b.same))
	}
}

func BenchmarkScheduleHugePod(b *testing.B) {
	for _, containers := range []int{100, 20000} {
		b.Run(fmt.Sprint(containers), func(b *testing.B) {
			for range b.N {
				s := newScheduler(8, tGap, tPatience, tHold, unlimited())
				for i := range containers {
					s.add(ask("huge", fmt.Sprint(i)), 0)
				}
				now := time.Millisecond
				for start, _ := s.next(now); len(start) > 0; start, _ = s.next(now) {
					now += time.Millisecond
					for _, t := range start {
						s.finish(t, now, false)
					}
				}
				if waiting, running, _ := s.depth(); waiting+running != 0 {
					b.Fatalf("%d wait, %d run", waiting, running)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*containers), "ns/container")
		})
	}
}

// One hung container doesn't keep its neighbours from being asked.
func TestHungContainerAndItsPod(t *testing.T) {
	b := newBench(t, 8)
	b.ask("p", "hung")
	b.ask("p", "y")
	b.ask("p", "z")
	hung := b.starts("hung")
	b.now += tPatience
	b.end(b.starts("y"))
	b.end(b.starts("z"))
	if _, running, slow := b.depth(); running != 1 || slow != 1 {
		t.Errorf("%d run, %d slow", running, slow)
	}
	b.now += 9 * time.Second
	b.finish(hung[0], b.now, true)
	b.ask("p", "hung")
	b.starts() // what timed out may still run there
	b.now += tHold
	b.starts("hung")
}

// As many pods as there are slots hang with all that is in them; others wait
// no longer than patience, and the next time not at all.
func TestHungPodsDelayNobodyElse(t *testing.T) {
	const slots = 4
	b := newBench(t, slots)
	for p := range slots {
		for c := range podLimit {
			b.ask(fmt.Sprintf("hung%d", p), fmt.Sprintf("hung%d%d", p, c))
		}
	}
	var hung []*task
	hung = append(hung, b.starts("hung00", "hung10", "hung20", "hung30")...)
	b.ask("well", "w1")
	b.starts() // no slot
	b.now += tPatience
	started, _ := b.next(b.now)
	if got := ids(started); len(got) != slots || !slices.Contains(got, "w1") {
		t.Fatalf("after patience: %v", got)
	}
	for _, s := range started {
		if s.action.ID == "w1" {
			b.end([]*task{s})
		} else {
			hung = append(hung, s)
		}
	}
	b.now += tPatience
	b.ask("well", "w2")
	started, _ = b.next(b.now)
	if got := ids(started); !slices.Contains(got, "w2") {
		t.Fatalf("after the second patience: %v", got)
	}
	for _, s := range started {
		if s.action.ID != "w2" {
			hung = append(hung, s)
		} else {
			b.end([]*task{s})
		}
	}
	// Both calls of each pod hang. From now on nobody waits.
	b.now += tPatience
	b.next(b.now)
	for range 100 {
		b.now += tGap
		b.ask("well", "w3")
		b.end(b.starts("w3"))
	}
	if len(hung) != 2*slots {
		t.Errorf("%d hang", len(hung))
	}
	// They time out and are asked again: known to hang, they take no slot.
	for _, h := range hung {
		b.finish(h, b.now, true)
	}
	b.amnestyOfHolds()
	for _, h := range hung {
		b.add(h.action, b.now)
	}
	b.next(b.now)
	for range 100 {
		b.now += tGap
		b.ask("well", "w4")
		start, _ := b.next(b.now)
		if !slices.Contains(ids(start), "w4") {
			t.Fatal("waits for what is known to hang")
		}
		for _, s := range start {
			if s.action.ID == "w4" {
				b.end([]*task{s})
			}
		}
	}
}

// amnestyOfHolds lets what timed out be asked at once, but not as if it had
// been quick.
func (b *bench) amnestyOfHolds() {
	for k, m := range b.slow {
		b.slow[k] = slowMark{seen: m.seen}
	}
}

// When it was the runtime as a whole that hung, nothing is held back.
func TestAmnesty(t *testing.T) {
	b := newBench(t, 2)
	b.ask("p", "a")
	a := b.starts("a")
	b.now += 10 * time.Second
	b.finish(a[0], b.now, true)
	b.ask("p", "a")
	b.starts()
	b.amnesty()
	b.starts("a")
}

func TestSlowMarksAreForgotten(t *testing.T) {
	b := newBench(t, 2)
	for i := range 100 {
		id := fmt.Sprint(i)
		b.ask(id, id)
		s := b.starts(id)
		b.now += 2 * tPatience
		b.end(s)
	}
	if len(b.slow) == 0 {
		t.Fatal("nothing was slow")
	}
	b.now += 2 * slowMemory
	b.ask("x", "x")
	b.end(b.starts("x"))
	if len(b.slow) != 0 {
		t.Errorf("%d marks left", len(b.slow))
	}
}

// TestScheduleProperties runs random questions, durations and hangs against
// what must always hold.
func TestScheduleProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 5).Draw(t, "slots")
		s := newScheduler(slots, tGap, tPatience, tHold, rate.NewLimiter(3, 2))
		now := time.Duration(0)
		ends := map[*task]time.Duration{}
		timesOut := map[*task]bool{}
		rounds := map[string]time.Duration{}
		asked, answered := 0, 0
		step := func() {
			for _, st := range slices.SortedFunc(keys(ends), func(a, b *task) int { return int(a.seq) - int(b.seq) }) {
				if ends[st] <= now {
					s.finish(st, now, timesOut[st])
					delete(ends, st)
					answered++
				}
			}
			start, wake := s.next(now)
			if wake != 0 && wake < now {
				t.Fatalf("wake %v in the past of %v", wake, now)
			}
			for _, st := range start {
				key := st.action.ID
				for other := range ends {
					if other.action.Key() == st.action.Key() {
						t.Fatalf("%s asked twice at once", key)
					}
				}
				if st.ready > now {
					t.Fatalf("%s sent %v early", key, st.ready-now)
				}
				// Rounds are a gap apart, and what goes belongs to the present one.
				round := s.pods[st.pod].round
				if r, ok := rounds[st.pod]; ok && round != r && round < r+tGap {
					t.Fatalf("pod %s: round at %v after one at %v", st.pod, round, r)
				}
				if rounds[st.pod] = round; st.ready > round || round > now {
					t.Fatalf("%s, wanted at %v, is not of the round at %v", key, st.ready, round)
				}
				took := time.Duration(rapid.SampledFrom([]int{1, 5, 50, 500, 3000, 10000}).Draw(t, "took")) * time.Millisecond
				ends[st] = now + took
				timesOut[st] = took == 10*time.Second
			}
			perPod := map[string]int{}
			quick := 0
			for st := range ends {
				perPod[st.pod]++
				if perPod[st.pod] > podLimit {
					t.Fatalf("pod %s has %d in flight", st.pod, perPod[st.pod])
				}
				if st.lane == fastLane {
					quick++
				}
			}
			if quick > slots || len(ends) > slots*(1+podLimit*hangFactor) {
				t.Fatalf("%d quick, %d in all, %d slots", quick, len(ends), slots)
			}
			if _, running, _ := s.depth(); running != len(ends) {
				t.Fatalf("%d running, %d open", running, len(ends))
			}
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			for range rapid.IntRange(0, 3).Draw(t, "questions") {
				id := fmt.Sprint(rapid.IntRange(0, 11).Draw(t, "id"))
				ready := now + time.Duration(rapid.SampledFrom([]int{0, 0, 0, 10, 300}).Draw(t, "later"))*time.Millisecond
				a := ask("p"+id[:1], id)
				a.Unknown = rapid.Bool().Draw(t, "unknown")
				if s.queued[a.Key()] == nil { // else it joins the one that waits
					asked++
				}
				s.add(a, ready)
			}
			step()
			now += time.Duration(rapid.IntRange(1, 700).Draw(t, "pass")) * time.Millisecond
		}
		for limit := now + time.Hour; answered < asked; now += 50 * time.Millisecond {
			if step(); now > limit {
				t.Fatalf("%d of %d questions were never answered", asked-answered, asked)
			}
		}
		if now += tGap; len(s.running) != 0 {
			t.Fatal("something runs for ever")
		}
		s.next(now)
		if len(s.pods) != 0 {
			t.Fatalf("%d pods left over", len(s.pods))
		}
	})
}

func keys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// TestFreshReasonDoesNotWaitForABackOff, but for the pod's gap and for what
// hung.
func TestFreshReasonDoesNotWaitForABackOff(t *testing.T) {
	b := newBench(t, 8)
	b.add(ask("p", "a"), b.now+5*time.Minute)
	b.starts()
	b.ask("p", "a")
	started := b.starts("a")
	b.finish(started[0], b.now, false)
	b.add(ask("p", "a"), b.now+5*time.Minute)
	b.now += tGap / 2
	b.ask("p", "a")
	b.starts()
	b.now += tGap / 2
	started = b.starts("a")
	b.finish(started[0], b.now, true)
	b.add(ask("p", "a"), b.now+5*time.Minute)
	b.ask("p", "a")
	b.now += tHold - 1
	b.starts()
	b.now++
	b.end(b.starts("a"))
	b.now += 10 * time.Minute
	b.starts() // it was one question all along
}
