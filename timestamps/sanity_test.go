package timestamps

import (
	"math"
	"slices"
	"testing"
)

const second = int64(1_000_000_000)

// Rule T3: values in the wrong unit, zero, negative, far in the past or later
// than their receipt are told apart by kind.
func TestT3Judge(t *testing.T) {
	const now = 1_750_000_000 * 1_000_000_000 // June 2025
	for _, c := range []struct {
		name       string
		t, receipt int64
		want       Anomaly
	}{
		{"now", now, now, Plausible},
		{"a minute ago", now - 60*second, now, Plausible},
		{"replayed after 5 minutes", now - 300*second, now, Plausible},
		{"a bit ahead", now + FutureSlack, now, Plausible},
		{"ahead", now + FutureSlack + 1, now, Future},
		{"far ahead", math.MaxInt64, now, Future},
		{"a year ago", now - FarPastAge, now, Plausible},
		{"more than a year ago", now - FarPastAge - 1, now, FarPast},
		{"1 ns after 1970", 1, now, FarPast},
		{"not set", 0, now, Zero},
		{"before 1970", -1, now, Negative},
		{"Go's zero time as containerd sends it", -6795364578871345152, now, Negative},
		{"smallest", math.MinInt64, now, Negative},
		{"seconds", now / 1e9, now, Seconds},
		{"milliseconds", now / 1e6, now, Seconds},
		{"microseconds", now / 1e3, now, Seconds},
		{"seconds, an hour ago", now/1e9 - 3600, now, Seconds},
		{"a step back between sending and receipt", now + second, now, Future},
		{"milliseconds, a bit ahead", now/1e6 + 10, now, Seconds},
		{"milliseconds, ahead", now/1e6 + 11, now, FarPast},
		{"seconds, ahead", now/1e9 + 1, now, FarPast},
		{"seconds, two years ago", now/1e9 - 2*365*24*3600, now, FarPast},
		{"board without a clock", 5 * second, 6 * second, Plausible},
		{"board without a clock, ahead", 9 * second, 6 * second, Future},
		{"board without a clock, 1 ns", 1, 6 * second, Plausible},
		{"agent's clock before 1970", 5, -6 * second, Future},
		{"agent's clock before 1970, both", -7 * second, -6 * second, Negative},
		{"agent's clock at its end", math.MaxInt64, math.MaxInt64, Plausible},
		{"agent's clock at its start", 1, math.MinInt64, Future},
		{"agent's clock not set", 1, 0, Plausible},
	} {
		if got := Judge(c.t, c.receipt); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestAnomalyString(t *testing.T) {
	var names []string
	for a := range Anomaly(Anomalies) {
		names = append(names, a.String())
	}
	if want := []string{"plausible", "zero", "negative", "seconds", "far_past", "future"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	if got := Anomaly(200).String(); got != "invalid" {
		t.Errorf("got %q", got)
	}
}

// Whatever comes, there is one verdict, and it keeps what the kinds mean.
func FuzzT3Judge(f *testing.F) {
	for _, a := range extremes {
		for _, b := range extremes {
			f.Add(a, b)
		}
	}
	f.Fuzz(func(t *testing.T, at, receipt int64) {
		got := Judge(at, receipt)
		ahead := subClamped(at, receipt)
		switch {
		case int(got) >= Anomalies:
			t.Errorf("%d is no kind", got)
		case (got == Zero) != (at == 0), (got == Negative) != (at < 0):
			t.Errorf("%d is called %s", at, got)
		case (got == Future) != (at > 0 && ahead > FutureSlack):
			t.Errorf("%d ns ahead is called %s", ahead, got)
		case (got == Plausible) != (at > 0 && ahead <= FutureSlack && ahead >= -FarPastAge):
			t.Errorf("%d ns ahead is called %s", ahead, got)
		case got == Plausible && receipt < math.MaxInt64-second && Judge(at, receipt+1) == Future:
			t.Errorf("%d became future by being received later", at)
		}
	})
}
