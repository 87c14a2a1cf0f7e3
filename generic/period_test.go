package generic

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/plegd/plegd/arbiter"
)

// TestPeriod runs scripts: u stream up, d stream down, c clean relist, m relist
// with a miss, n neither, s shrink, f failed list. After each input stands what
// the period is then, in seconds.
func TestPeriod(t *testing.T) {
	for _, tc := range []struct{ what, script string }{
		{"base while there is no stream", "c1 c1 n1 s1 f1"},
		{"doubles to the longest while clean", "u1 c2 c4 c8 c10 c10 n10"},
		{"undecided relists move nothing", "u1 c2 n2 n2 c4"},
		{"back at once when the stream ends", "u1 c2 c4 d1 c1 u1 c2"},
		{"back at once on a miss", "u1 c2 c4 m1"},
		{"back at once on doubt, without a strike", "u1 c2 c4 s1 c2 f1 c2"},
		{"a miss asks for two clean relists", "u1 m1 c1 c2 c4"},
		{"a second one for four", "u1 m1 c1 m1 c1 c1 c1 c2 c4"},
		{"and an interrupted run starts over", "u1 m1 m1 c1 c1 c1 s1 c1 c1 c1 c2"},
		{"misses are remembered when the stream ends", "u1 m1 d1 u1 c1 c2"},
		{"each clean relist at the longest forgives one", "u1 m1 m1 c1 c1 c1 c2 c4 c8 c10 c10 c10 s1 c2"},
		{"another version starts without them", "u1 m1 m1 c1 r1 c2 c4"},
		{"and at the base", "u1 c2 c4 r1 c2"},
		{"forgiven in part", "u1 m1 m1 c1 c1 c1 c2 c4 c8 c10 c10 s1 c1 c2"},
	} {
		p := newPeriod(time.Second, 10*time.Second)
		for i, step := range strings.Fields(tc.script) {
			apply(&p, step[0])
			if got := fmt.Sprintf("%c%d", step[0], p.current/time.Second); got != step {
				t.Errorf("%s: step %d of %q: got %s", tc.what, i+1, tc.script, got)
				break
			}
		}
	}
}

func apply(p *period, input byte) {
	switch input {
	case 'u':
		p.stream(true)
	case 'd':
		p.stream(false)
	case 'c':
		p.judged(arbiter.Relist{Clean: true}, p.next)
	case 'm':
		p.judged(arbiter.Relist{Misses: 3}, p.next)
	case 'n':
		p.judged(arbiter.Relist{}, p.next)
	case 's', 'f':
		p.shrink()
	case 'r':
		p.renew()
	}
}

// However often the runtime is listed, the period is no longer than time has earned.
func TestPeriodIsEarnedByTime(t *testing.T) {
	p := newPeriod(time.Second, time.Minute)
	apply(&p, 'u')
	for now := time.Duration(0); now < 10*time.Second; now += 100 * time.Millisecond {
		p.judged(arbiter.Relist{Clean: true}, now)
		if most := max(2*time.Second, 3*now); p.current > most {
			t.Fatalf("after %v the period is %v", now, p.current)
		}
	}
	if p.current != 8*time.Second {
		t.Errorf("after ten seconds it is %v", p.current)
	}
	p.judged(arbiter.Relist{Misses: 1}, 10*time.Second)
	if p.current != time.Second || p.strikes != 1 {
		t.Errorf("after a miss: %+v", p.status())
	}
}

func TestPeriodStates(t *testing.T) {
	for _, tc := range []struct {
		script string
		want   PeriodStatus
	}{
		{"", PeriodStatus{State: Polling, Period: 1, Needed: 1}},
		{"u", PeriodStatus{State: Proving, Period: 1, Needed: 1}},
		{"uc", PeriodStatus{State: Stretching, Period: 2, Clean: 1, Needed: 1}},
		{"uccc", PeriodStatus{State: Stretched, Period: 8, Clean: 3, Needed: 1}},
		{"uccd", PeriodStatus{State: Polling, Period: 1, Needed: 1}},
		{"umc", PeriodStatus{State: Proving, Period: 1, Clean: 1, Needed: 2, Strikes: 1}},
		{"ummmmmmmmmm", PeriodStatus{State: Proving, Period: 1, Needed: 64, Strikes: 6}},
	} {
		p := newPeriod(1, 8)
		for i := range len(tc.script) {
			apply(&p, tc.script[i])
		}
		if got := p.status(); got != tc.want {
			t.Errorf("%q: got %+v, want %+v", tc.script, got, tc.want)
		}
	}
	p := newPeriod(5, 5)
	apply(&p, 'u')
	apply(&p, 'c')
	if got := p.status(); got.State != Stretched || got.Period != 5 {
		t.Errorf("base equal to longest: %+v", got)
	}
}

func TestPeriodUpdates(t *testing.T) {
	p := newPeriod(time.Second, 8*time.Second)
	p.update(2*time.Second, 20*time.Second)
	if p.current != 2*time.Second {
		t.Errorf("at the base: %v", p.current)
	}
	for _, c := range "uccc" {
		apply(&p, byte(c))
	}
	p.update(time.Second, 4*time.Second)
	if p.current != 4*time.Second {
		t.Errorf("above the new longest: %v", p.current)
	}
	p.update(6*time.Second, 60*time.Second)
	if p.current != 6*time.Second {
		t.Errorf("below the new base: %v", p.current)
	}
}

func TestPeriodProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "base"))
		longest := base + time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "above"))
		p := newPeriod(base, longest)
		clean := 0 // clean relists since the last trouble
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			before := p
			in := rapid.SampledFrom([]byte("uddcccccccccmnsr")).Draw(t, "input")
			apply(&p, in)
			switch in {
			case 'c':
				clean++
			case 'n':
			default:
				clean = 0
			}
			s := p.status()
			switch {
			case p.current < base || p.current > longest:
				t.Fatalf("period %v out of bounds", p.current)
			case !p.up && p.current != base:
				t.Fatalf("stretched without a stream: %+v", s)
			case (in == 'm' || in == 's' || in == 'r' || in == 'd' || in == 'u') && p.current != base:
				t.Fatalf("not back at the base after %c", in)
			case p.current > before.current && (in != 'c' || clean < before.needed() || p.current > 2*before.current):
				t.Fatalf("grew from %v to %v on %c after %d clean of %d", before.current, p.current, in, clean, before.needed())
			case in == 'm' && s.Needed < before.needed():
				t.Fatalf("a miss made it easier: %d to %d", before.needed(), s.Needed)
			case s.Needed < before.needed() && in != 'r' && (in != 'c' || before.current != longest):
				t.Fatalf("forgiven by %c at %v", in, before.current)
			}
		}
		// Trust can always be earned back.
		p.stream(true)
		for range 1<<maxStrikes + 64 {
			apply(&p, 'c')
		}
		if p.current != longest {
			t.Fatalf("never back at the longest: %+v", p.status())
		}
	})
}

func TestJitter(t *testing.T) {
	for _, tc := range []struct {
		p, base, want time.Duration
		r             float64
	}{
		{100, 100, 100, 1}, {1000, 100, 1000, 0}, {1000, 100, 900, 1}, {1000, 100, 950, 0.5}, {1000, 950, 950, 1}, {1000, 100, 900, 7}, {1000, 100, 1000, -1},
	} {
		if got := jittered(tc.p, tc.base, tc.r); got != tc.want {
			t.Errorf("%+v: got %v", tc, got)
		}
	}
}

func TestDelays(t *testing.T) {
	for attempt, ms := range []int{0, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 102400, 204800, 300000, 300000} {
		want := time.Duration(ms) * time.Millisecond
		if got := delay(attempt, 0.5); got.Round(time.Millisecond) != want {
			t.Errorf("attempt %d: %v, want %v", attempt, got, want)
		}
	}
	if delay(-1, 0) != 0 || delay(1<<40, 1) != time.Duration(1.2*float64(retryMax)) || delay(1, 0) != 160*time.Millisecond {
		t.Error("out of range", delay(-1, 0), delay(1<<40, 1), delay(1, 0))
	}
}
