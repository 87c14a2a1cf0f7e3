package timestamps

import (
	"math"
	"math/big"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// Rule T1: ticks grow strictly, and go on above the highest one committed.
func TestT1CounterGoesOnAboveWhatWasCommitted(t *testing.T) {
	var zero Counter
	if got := zero.Next(); got != 1 {
		t.Errorf("the zero counter starts at %d, want 1", got)
	}
	c := NewCounter(41)
	if c.Last() != 41 {
		t.Errorf("last is %d before the first tick, want 41", c.Last())
	}
	for want := Tick(42); want < 50; want++ {
		if got := c.Next(); got != want || c.Last() != want {
			t.Errorf("got tick %d and last %d, want %d", got, c.Last(), want)
		}
	}
}

func TestT1CounterNeverGivesATickTwice(t *testing.T) {
	const goroutines, each = 4, 500
	c := new(Counter)
	got := make([][]Tick, goroutines)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			for range each {
				got[i] = append(got[i], c.Next())
			}
		})
	}
	wg.Wait()
	for _, ticks := range got {
		if !slices.IsSorted(ticks) {
			t.Error("a goroutine's ticks don't grow")
		}
	}
	all := slices.Concat(got...)
	slices.Sort(all)
	for i, tick := range all {
		if tick != Tick(i+1) {
			t.Fatalf("tick %d is missing or was given twice", i+1)
		}
	}
}

// Rules T1 and T2: only a call sent after an observation was received or
// answered is after it; an event is after nothing.
func TestT1T2SpanOrder(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b Span
		want string
	}{
		{"call sent after an answer", Call(5, 6), Call(2, 4), "after"},
		{"call sent after a receipt", Call(5, 6), Receipt(4), "after"},
		{"call sent at the very tick of the answer", Call(4, 6), Call(2, 4), "concurrent"},
		{"overlapping calls", Call(3, 6), Call(2, 4), "concurrent"},
		{"one call inside another", Call(2, 9), Call(3, 4), "concurrent"},
		{"a call and itself", Call(2, 4), Call(2, 4), "concurrent"},
		{"call answered before another was sent", Call(1, 2), Call(3, 4), "before"},
		{"event received after an answer", Receipt(9), Call(2, 4), "concurrent"},
		{"event received before a call was sent", Receipt(1), Call(2, 4), "before"},
		{"event received during a call", Receipt(3), Call(2, 4), "concurrent"},
		{"two events", Receipt(9), Receipt(1), "concurrent"},
		{"call and nothing", Call(1, 2), Span{}, "after"},
		{"event and nothing", Receipt(9), Span{}, "concurrent"},
		{"nothing and nothing", Span{}, Span{}, "concurrent"},
	} {
		if got := order(c.a, c.b); got != c.want {
			t.Errorf("%s: %v is %s %v, want %s", c.name, c.a, got, c.b, c.want)
		}
		mirror := map[string]string{"after": "before", "before": "after", "concurrent": "concurrent"}[c.want]
		if got := order(c.b, c.a); got != mirror {
			t.Errorf("%s, seen from the other side: got %s, want %s", c.name, got, mirror)
		}
	}
}

// order names the relation and fails if not exactly one holds.
func order(a, b Span) string {
	var got []string
	if a.After(b) {
		got = append(got, "after")
	}
	if a.Before(b) {
		got = append(got, "before")
	}
	if a.Concurrent(b) {
		got = append(got, "concurrent")
	}
	if len(got) != 1 {
		return "several or none"
	}
	return got[0]
}

func TestT1SpanOrderIsAPartialOrder(t *testing.T) {
	span := rapid.Custom(func(t *rapid.T) Span {
		from := rapid.Uint64Range(0, 12).Draw(t, "from")
		return Span{From: Tick(from), To: Tick(from + rapid.Uint64Range(0, 6).Draw(t, "length"))}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := span.Draw(t, "a"), span.Draw(t, "b"), span.Draw(t, "c")
		if order(a, b) == "several or none" {
			t.Fatalf("%v and %v: not exactly one relation holds", a, b)
		}
		if a.After(a) {
			t.Fatalf("%v is after itself", a)
		}
		if a.After(b) && b.After(c) && !a.After(c) {
			t.Fatalf("%v after %v after %v, but not the first after the last", a, b, c)
		}
	})
}

func TestSpanIsZero(t *testing.T) {
	if !(Span{}).IsZero() || Receipt(1).IsZero() || Call(1, 2).IsZero() {
		t.Error("IsZero is wrong")
	}
}

func TestProvenanceString(t *testing.T) {
	for p, want := range map[Provenance]string{FromUnknown: "unknown", FromStream: "stream", FromRelist: "relist", FromInspect: "inspect", 200: "unknown"} {
		if got := p.String(); got != want {
			t.Errorf("%d is called %q, want %q", p, got, want)
		}
	}
}

// Rule T4: durations are monotonic, and never negative.
func TestT4StampSince(t *testing.T) {
	for _, c := range []struct{ later, earlier, want int64 }{
		{5, 3, 2}, {3, 3, 0}, {3, 5, 0}, {math.MaxInt64, math.MinInt64, math.MaxInt64}, {0, math.MinInt64, math.MaxInt64}, {math.MinInt64, math.MaxInt64, 0},
	} {
		// The wall clock has no say in it.
		if got := (Stamp{Mono: c.later, Wall: -1}).Since(Stamp{Mono: c.earlier, Wall: 99}); got != c.want {
			t.Errorf("from %d to %d took %d, want %d", c.earlier, c.later, got, c.want)
		}
	}
}

var extremes = []int64{math.MinInt64, math.MinInt64 + 1, -6795364578871345152, -1, 0, 1, 1_700_000_000_000_000_000, math.MaxInt64 - 1, math.MaxInt64}

func TestClampedArithmetic(t *testing.T) {
	clamp := func(v *big.Int) int64 {
		switch {
		case v.Cmp(big.NewInt(math.MaxInt64)) > 0:
			return math.MaxInt64
		case v.Cmp(big.NewInt(math.MinInt64)) < 0:
			return math.MinInt64
		}
		return v.Int64()
	}
	check := func(t interface{ Fatalf(string, ...any) }, a, b int64) {
		if got, want := AddClamped(a, b), clamp(new(big.Int).Add(big.NewInt(a), big.NewInt(b))); got != want {
			t.Fatalf("%d + %d = %d, want %d", a, b, got, want)
		}
		if got, want := subClamped(a, b), clamp(new(big.Int).Sub(big.NewInt(a), big.NewInt(b))); got != want {
			t.Fatalf("%d - %d = %d, want %d", a, b, got, want)
		}
	}
	for _, a := range extremes {
		for _, b := range extremes {
			check(t, a, b)
		}
	}
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")) })
}
