package timestamps

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Rule D2: numbers come only from the block whose reservation is durable.
func TestD2AllocatorTakesAllOrNothing(t *testing.T) {
	a := NewAllocator(5, 8)
	for _, c := range []struct {
		n     int
		first uint64
		err   error
		left  uint64
	}{
		{0, 5, nil, 4}, {-1, 0, ErrExhausted, 4}, {5, 0, ErrExhausted, 4}, {math.MaxInt, 0, ErrExhausted, 4},
		{3, 5, nil, 1}, {2, 0, ErrExhausted, 1}, {1, 8, nil, 0}, {1, 0, ErrExhausted, 0}, {0, 9, nil, 0},
	} {
		first, err := a.Take(c.n)
		if first != c.first || !errors.Is(err, c.err) || a.Left() != c.left {
			t.Errorf("Take(%d): got %d and error %v, %d left; want %d, %v, %d", c.n, first, err, a.Left(), c.first, c.err, c.left)
		}
	}
	a.Extend(7) // below what is known: ignored
	if a.Left() != 0 || a.Limit() != 8 {
		t.Errorf("got %+v", a)
	}
	a.Extend(10)
	if first, err := a.Take(2); first != 9 || err != nil || a.Next() != 11 {
		t.Errorf("got %d and error %v", first, err)
	}
}

func TestD2ZeroAllocatorHandsOutNothing(t *testing.T) {
	var a Allocator
	if a.Left() != 0 || a.Next() != 1 {
		t.Errorf("left %d, next %d", a.Left(), a.Next())
	}
	if first, err := a.Take(1); !errors.Is(err, ErrExhausted) {
		t.Errorf("it handed out %d", first)
	}
	a.Extend(3)
	if first, err := a.Take(3); first != 1 || err != nil { // never number 0
		t.Errorf("got %d and error %v", first, err)
	}
}

func TestD2AllocatorIsAValue(t *testing.T) {
	a := NewAllocator(1, 10)
	try := a
	if _, err := try.Take(10); err != nil {
		t.Fatal(err)
	}
	if a.Left() != 10 {
		t.Errorf("a trial on a copy took numbers: %d left", a.Left())
	}
}

func TestD2Reservation(t *testing.T) {
	for _, c := range []struct {
		name        string
		next, limit uint64
		n           int
		want        uint64
		ok          bool
	}{
		{"fresh", 1, 0, 1, Block, true},
		{"fresh, nothing", 1, 0, 0, 0, true},
		{"negative", 1, 0, -5, 0, true},
		{"one whole block", 1, 0, Block, Block, true},
		{"one more", 1, 0, Block + 1, 2 * Block, true},
		{"enough is left", 5, 10, 6, 10, true},
		{"not enough is left", 5, 10, 7, 10 + Block, true},
		{"block was skipped", 100, 10, 1, 99 + Block, true},
		{"last block", MaxNumber - Block + 1, MaxNumber - Block, 1, MaxNumber, true},
		{"no block left", MaxNumber - Block + 2, MaxNumber - Block + 1, 1, 0, false},
		{"no number left", MaxNumber + 1, MaxNumber, 1, 0, false},
		{"no number left, nothing wanted", MaxNumber + 1, MaxNumber, 0, MaxNumber, true},
		{"more than there is", 1, 0, math.MaxInt, 0, false},
		{"next out of range", math.MaxUint64, 0, 1, 0, false},
	} {
		got, ok := NewAllocator(c.next, c.limit).Reservation(c.n)
		if got != c.want || ok != c.ok {
			t.Errorf("%s: got %d, %v; want %d, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// Rule D2, against a model: the durable limit, and the numbers given so far.
// Between random calls the process may die, stop or start a new epoch.
func TestD2NoNumberTwiceNorOutsideTheReservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.SampledFrom([]uint64{1, 1, 77, MaxNumber - 3*Block, MaxNumber - 5}).Draw(t, "start")
		durable, given := start-1, start-1 // highest number reserved, highest given
		a := NewAllocator(start, durable)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.IntRange(-1, 2*Block).Draw(t, "n")
				left := a.Left()
				first, err := a.Take(n)
				if ok := n >= 0 && uint64(n) <= left; ok != (err == nil) {
					t.Fatalf("took %d of %d with error %v", n, left, err)
				} else if !ok || n == 0 {
					return
				}
				last := first + uint64(n) - 1
				if first <= given || last > durable || last > MaxNumber || first == 0 {
					t.Fatalf("got %d to %d; given up to %d, durable up to %d", first, last, given, durable)
				}
				given = last
			},
			"reserve": func(t *rapid.T) {
				n := rapid.IntRange(0, 3*Block).Draw(t, "n")
				limit, ok := a.Reservation(n)
				if !ok {
					if MaxNumber-min(max(durable, given), MaxNumber) >= uint64(n)+Block {
						t.Fatalf("no %d numbers are left above %d", n, durable)
					}
					return
				}
				if limit > MaxNumber || limit < a.Limit() || limit-given < uint64(n) {
					t.Fatalf("a reservation up to %d isn't good for %d numbers above %d", limit, n, given)
				}
				if durable = limit; rapid.Bool().Draw(t, "committed") {
					a.Extend(limit)
				} // else the answer got lost: the allocator may not use it yet
			},
			"crash": func(*rapid.T) {
				a, given = NewAllocator(durable+1, durable), durable // the rest of the block is skipped
			},
			"stop": func(*rapid.T) {
				durable = given // a clean stop gives the rest back
				a = NewAllocator(given+1, durable)
			},
			"": func(t *rapid.T) {
				if a.Limit() > max(durable, start-1) || a.Limit() > MaxNumber {
					t.Fatalf("limit is %d, durable is %d", a.Limit(), durable)
				}
			},
		})
	})
}
