package pleg

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/logtest"
)

// TestConditionLog: one line when trouble starts, one when it ends, and few
// when it comes and goes.
func TestConditionLog(t *testing.T) {
	t.Parallel()
	type step struct {
		at    time.Duration
		holds bool
	}
	every := func(from, to, period, held time.Duration) (steps []step) {
		for at := from; at < to; at += period {
			steps = append(steps, step{at, true}, step{at + held, false})
		}
		return steps
	}
	for _, tc := range []struct {
		name  string
		steps []step
		want  []string // "+" and when it was told, "-", when, what after and how often
	}{
		{"once", []step{{3 * time.Second, true}, {10 * time.Second, false}}, []string{"+3s", "-10s after=7s times=1"}},
		{"never ends", []step{{3 * time.Second, true}}, []string{"+3s"}},
		{"long apart", []step{{0, true}, {time.Second, false}, {2 * time.Minute, true}, {3 * time.Minute, false}},
			[]string{"+0s", "-1s after=1s times=1", "+2m0s", "-3m0s after=1m0s times=1"}},
		{"twice", []step{{0, true}, {time.Second, false}, {10 * time.Second, true}, {11 * time.Second, false}},
			[]string{"+0s", "-1s after=1s times=1", "+10s", "-16s after=1s times=1"}},
		{"an end that doesn't last is none", []step{{0, true}, {time.Second, false}, {5 * time.Second, true}, {6 * time.Second, false}, {9 * time.Second, true}, {12 * time.Second, false}},
			[]string{"+0s", "-1s after=1s times=1", "+5s", "-17s after=7s times=2"}},
		{"flapping every second for an hour", every(0, time.Hour, time.Second, 500*time.Millisecond),
			[]string{"+0s", "-500ms after=500ms times=1", "+1s", "-1h0m4.5s after=59m58.5s times=3599"}},
		{"forgiven", append(every(0, 3*time.Second, time.Second, 500*time.Millisecond), step{10 * time.Minute, true}, step{11 * time.Minute, false}),
			[]string{"+0s", "-500ms after=500ms times=1", "+1s", "-7.5s after=1.5s times=2", "+10m0s", "-11m0s after=1m0s times=1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := new(logtest.Buffer)
			l := newConditionLog(log.Logger())
			var got []string
			var holding []Condition
			last := tc.steps[len(tc.steps)-1].at + 20*time.Minute
			next := 0
			for now := time.Duration(0); now < last; now += 500 * time.Millisecond {
				for next < len(tc.steps) && tc.steps[next].at <= now {
					holding = nil
					if tc.steps[next].holds {
						holding = []Condition{{Name: ConditionStreamDown, Reason: "x", Ready: true}}
					}
					next++
				}
				before := len(log.Lines())
				l.look(now, holding)
				for _, line := range log.Lines()[before:] {
					if strings.Contains(line, "level=WARN msg=trouble condition=stream_down reason=x ready=true") {
						got = append(got, fmt.Sprintf("+%v", now))
					} else if _, rest, ok := strings.Cut(line, "level=INFO msg=recovered condition=stream_down "); ok {
						got = append(got, fmt.Sprintf("-%v %s", now, rest))
					} else {
						t.Errorf("line %s", line)
					}
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

// TestConditionLogFlappingIsBounded: whatever the rhythm, a day of coming and
// going costs no more than two lines in five minutes.
func TestConditionLogFlappingIsBounded(t *testing.T) {
	t.Parallel()
	for _, period := range []time.Duration{time.Second, 6 * time.Second, 20 * time.Second, time.Minute, 2 * time.Minute} {
		log := new(logtest.Buffer)
		l := newConditionLog(log.Logger())
		for now := time.Duration(0); now < 24*time.Hour; now += period {
			l.look(now, []Condition{{Name: ConditionRelistFailing}})
			for d := time.Duration(0); d < period; d += period / 4 {
				l.look(now+d+period/8, nil)
			}
		}
		if n := len(log.Lines()); n > 2*24*60/5 && period < time.Minute || n > 2*24*60 {
			t.Errorf("every %v: %d lines in a day", period, n)
		}
	}
}

// TestConditionLogWaitsForACause: what is quiet is told when it no longer is,
// and its end only if its start was.
func TestConditionLogWaitsForACause(t *testing.T) {
	t.Parallel()
	log := new(logtest.Buffer)
	l := newConditionLog(log.Logger())
	quiet := []Condition{{Name: ConditionNeverRelisted, Reason: "none yet", quiet: true}}
	l.look(0, quiet)
	l.look(time.Second, nil)
	if lines := log.Lines(); len(lines) != 0 {
		t.Errorf("told %q", lines)
	}
	l.look(2*time.Second, quiet)
	l.look(3*time.Second, []Condition{{Name: ConditionNeverRelisted, Reason: "nobody listens"}})
	l.look(5*time.Second, nil)
	lines := log.Lines()
	if len(lines) != 2 || !strings.Contains(lines[0], `level=ERROR msg=trouble condition=never_relisted reason="nobody listens"`) || !strings.Contains(lines[1], "after=3s") {
		t.Errorf("told %q", lines)
	}
}

// TestConditionLogOtherReason: a cause that changes is told, ever more rarely,
// and what changes only because time goes by is not.
func TestConditionLogOtherReason(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		cause func(now time.Duration) Condition
		want  []string // when which reason was told
	}{
		{"once", func(now time.Duration) Condition {
			if now < time.Minute {
				return Condition{Reason: "no such file"}
			}
			return Condition{Reason: "refused"}
		}, []string{"0s no such file", "1m0s refused"}},
		{"at once, and for a moment", func(now time.Duration) Condition {
			if now == 2*time.Second {
				return Condition{Reason: "refused"}
			}
			return Condition{Reason: "no such file"}
		}, []string{"0s no such file"}},
		{"all the time", func(now time.Duration) Condition {
			return Condition{Reason: []string{"a", "b", "c"}[int(now/time.Second)%3]}
		}, []string{"0s a", "5s c", "15s a", "35s c", "1m15s a", "2m35s c", "5m15s a", "10m35s c", "21m15s a", "42m35s c"}},
		{"an age", func(now time.Duration) Condition {
			return Condition{Reason: now.String(), moving: true, why: "refused"}
		}, []string{"0s 0s"}},
		{"an age, and then the cause", func(now time.Duration) Condition {
			why := "refused"
			if now >= time.Hour {
				why = "no answer"
			}
			return Condition{Reason: why + now.String(), moving: true, why: why}
		}, []string{"0s refused0s", "1h0m0s no answer1h0m0s"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			log := new(logtest.Buffer)
			l := newConditionLog(log.Logger())
			var got []string
			for now := time.Duration(0); now < 80*time.Minute; now += time.Second {
				c := tc.cause(now)
				c.Name = ConditionRelistOld
				l.look(now, []Condition{c})
				for _, line := range log.Lines()[len(got):] {
					got = append(got, fmt.Sprintf("%v %s", now, c.Reason))
					if want := map[bool]string{true: "trouble", false: `"trouble has another reason"`}[now == 0]; !strings.Contains(line, "level=ERROR msg="+want+" condition=relist_too_old") {
						t.Errorf("at %v: %s", now, line)
					}
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}
