package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
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

// TestSleep: it lasts as long as it was told, or as ctx does.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begin := time.Now()
		if err := Sleep(ctx, time.Second); err != nil || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if err := Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}
