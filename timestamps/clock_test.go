package timestamps

import (
	"testing"
	"time"
)

// Rule T3: wall clock and monotonic clock come in separately, so that a test
// can step one of them.
func TestT3ClockStampReadsBothClocks(t *testing.T) {
	wall, mono := time.Unix(100, 5), 3*time.Second
	c := Clock{Wall: func() time.Time { return wall }, Mono: func() time.Duration { return mono }}
	n := NewCounter(9)
	if got, want := c.Stamp(n, FromRelist), (Stamp{Tick: 10, Wall: 100_000_000_005, Mono: 3_000_000_000, Source: FromRelist}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	wall, mono = time.Unix(50, 0), 4*time.Second // the clock was set back
	if got, want := c.Stamp(n, FromStream), (Stamp{Tick: 11, Wall: 50_000_000_000, Mono: 4_000_000_000, Source: FromStream}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
