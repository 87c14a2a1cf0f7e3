package arbiter

import (
	"testing"
	"time"
)

// Bursts of a living node are not pressure, a storm is, and it ends soon.
func TestPressure(t *testing.T) {
	var p pressure
	p.init()
	now := time.Duration(0)
	step := func(d time.Duration, inputs int) bool {
		now += d
		p.took(now, inputs)
		p.wrote()
		return p.high(now)
	}
	if step(time.Second, busyBurst) {
		t.Error("one burst is pressure")
	}
	for range 100 {
		if step(100*time.Millisecond, 50) {
			t.Fatal("500 inputs a second are pressure")
		}
	}
	if !step(time.Second, 100_000) {
		t.Error("a full queue is no pressure")
	}
	for i := range 1000 {
		if !step(time.Millisecond, 2) {
			t.Fatalf("2,000 inputs a second are no pressure, after %d ms", i)
		}
	}
	if now += 70 * time.Millisecond; p.high(now) {
		t.Error("the storm goes on after its end")
	}
	p.took(now, busyBurst+1)
	if now += time.Second; !p.high(now) {
		t.Error("nothing of a burst is written, and that is no pressure")
	}
	if p.wrote(); p.high(now) {
		t.Error("the burst is written, and goes on")
	}
}
