package timestamps

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Rule T3: a drift of more than 2 s between both clocks is a step, told once;
// the base moves along.
func TestT3StepDetector(t *testing.T) {
	type reading struct{ wall, mono, want int64 }
	for name, readings := range map[string][]reading{
		"steady":                 {{100, 0, 0}, {100 + 5*second, 5 * second, 0}, {100 + 9*second, 9 * second, 0}},
		"the first is the base":  {{math.MaxInt64, math.MinInt64, 0}},
		"small drift":            {{0, 0, 0}, {StepThreshold, 0, 0}, {10*second - StepThreshold, 10 * second, 0}},
		"forward":                {{0, 0, 0}, {StepThreshold + 1, 0, StepThreshold + 1}, {StepThreshold + 1, 0, 0}},
		"backward":               {{0, 0, 0}, {-3600 * second, second, -3601 * second}, {-3599 * second, 2 * second, 0}},
		"there and back":         {{0, 0, 0}, {50 * second, 0, 50 * second}, {0, 0, -50 * second}, {second, second, 0}},
		"slept":                  {{0, 0, 0}, {600 * second, second, 599 * second}, {601 * second, 2 * second, 0}},
		"slewing adds up":        {{0, 0, 0}, {11 * second, 10 * second, 0}, {22 * second, 20 * second, 0}, {33 * second, 30 * second, 3 * second}},
		"after a bogus jump":     {{0, 0, 0}, {math.MaxInt64, 0, math.MaxInt64}, {second, second, -math.MaxInt64}, {2 * second, 2 * second, 0}},
		"wall from its smallest": {{math.MinInt64, 0, 0}, {0, 0, math.MaxInt64}, {second, second, 0}},
		"mono from its smallest": {{0, math.MinInt64, 0}, {0, 0, -math.MaxInt64}},
	} {
		var d StepDetector
		for i, r := range readings {
			if got := d.Observe(r.wall, r.mono); got != r.want {
				t.Errorf("%s: reading %d: got a step of %d, want %d", name, i, got, r.want)
			}
		}
	}
}

// After any step, however wild, the next consistent readings are quiet.
func TestT3OneBogusJumpDoesNotPoisonWhatFollows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d StepDetector
		clock := rapid.OneOf(rapid.Int64(), rapid.SampledFrom(extremes))
		for range rapid.IntRange(0, 5).Draw(t, "jumps") {
			d.Observe(clock.Draw(t, "wall"), clock.Draw(t, "mono"))
		}
		wall := rapid.Int64Range(0, 4e18).Draw(t, "wall")
		mono := rapid.Int64Range(0, 4e18).Draw(t, "mono")
		d.Observe(wall, mono)
		d.Observe(wall, mono) // the base may be up to 2 s off the first one
		for range 5 {
			passed := rapid.Int64Range(0, 3600*second).Draw(t, "passed")
			wall, mono = wall+passed, mono+passed
			if step := d.Observe(wall, mono); step != 0 {
				t.Fatalf("both clocks moved by %d and a step of %d was seen", passed, step)
			}
		}
	})
}

func FuzzT3StepDetector(f *testing.F) {
	for _, a := range extremes {
		f.Add(a, int64(0), int64(0), a)
		f.Add(int64(0), a, a, int64(0))
	}
	f.Fuzz(func(t *testing.T, wall1, mono1, wall2, mono2 int64) {
		var d StepDetector
		if got := d.Observe(wall1, mono1); got != 0 {
			t.Errorf("the first reading is a step of %d", got)
		}
		got := d.Observe(wall2, mono2)
		if got != 0 && got <= StepThreshold && got >= -StepThreshold {
			t.Errorf("a step of %d was told", got)
		}
		if again := d.Observe(wall2, mono2); got != 0 && again != 0 {
			t.Errorf("a step of %d was told again as %d", got, again)
		}
	})
}
