package retry

import (
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// TestDelaysDoubleAndNeverEnd, and a reset begins anew.
func TestDelaysDoubleAndNeverEnd(t *testing.T) {
	d := Delays(100*time.Millisecond, time.Second)
	for i, want := range []int64{100, 200, 400, 800, 1000, 1000} {
		if got := d.NextBackOff(); got.Milliseconds() != want {
			t.Errorf("delay %d: %v", i, got)
		}
	}
	for range 10_000 {
		if d.NextBackOff() == backoff.Stop {
			t.Fatal("it gives up")
		}
	}
	if d.Reset(); d.NextBackOff() != 100*time.Millisecond {
		t.Error("a reset doesn't begin anew")
	}
}

// TestJitterIsAFifthEachWay, whatever the source of chance returns.
func TestJitterIsAFifthEachWay(t *testing.T) {
	for r, want := range map[float64]time.Duration{0: 80, 0.5: 100, 1: 120, -3: 80, 7: 120} {
		if got := Jittered(100, r); got != want {
			t.Errorf("%v: %v", r, got)
		}
	}
}
