package timestamps

import "errors"

// ErrExhausted is returned by [Allocator.Take] when the durable block has too
// few numbers left. The caller reserves another block, makes the reservation
// durable, calls [Allocator.Extend] and takes again.
var ErrExhausted = errors.New("no reserved number left")

// Block is how many numbers one reservation holds. A crash skips what is left
// of it; at 200 commits a second of a few entries each a reservation lasts
// some seconds, so reserving costs nothing against the commits themselves.
const Block = 4096

// Allocator hands out the numbers of one epoch from a block whose reservation
// is durable (rule D2). It is a plain value: copy it to try an allocation
// without taking it. The zero Allocator has nothing to hand out.
type Allocator struct {
	next  uint64 // the next number to hand out
	limit uint64 // the last number of the durable block
}

// NewAllocator returns an allocator for the numbers next to limit, both
// included, which the caller has made durable.
func NewAllocator(next, limit uint64) Allocator {
	return Allocator{next: max(next, 1), limit: min(limit, MaxNumber)}
}

// Next returns the number that would be handed out next.
func (a Allocator) Next() uint64 { return max(a.next, 1) }

// Limit returns the last number of the durable block.
func (a Allocator) Limit() uint64 { return a.limit }

// Left returns how many numbers the durable block still has.
func (a Allocator) Left() uint64 {
	if a.Next() > a.limit {
		return 0
	}
	return a.limit - a.Next() + 1
}

// Take hands out n consecutive numbers and returns the first. It takes all or
// nothing; the error is [ErrExhausted].
func (a *Allocator) Take(n int) (first uint64, err error) {
	if n < 0 || uint64(n) > a.Left() {
		return 0, ErrExhausted
	}
	first = a.Next()
	a.next = first + uint64(n)
	return first, nil
}

// Extend tells the allocator that every number up to limit is now reserved
// durably. A limit below the one known is ignored.
func (a *Allocator) Extend(limit uint64) { a.limit = max(a.limit, min(limit, MaxNumber)) }

// Reservation returns the limit to make durable so that at least n numbers
// are available, in whole blocks. ok is false when the epoch has no n numbers
// left below 2^53: time for a new epoch.
func (a Allocator) Reservation(n int) (limit uint64, ok bool) {
	need, used := uint64(max(n, 0)), a.Next()-1
	limit = max(a.limit, used)
	if need <= limit-used {
		return limit, limit <= MaxNumber
	}
	// No overflow: used is below 2^64 and what is needed below 2^63, but their
	// sum need not fit, so the room that is left comes first.
	if limit > MaxNumber || need > MaxNumber-used {
		return 0, false
	}
	blocks := (need - (limit - used) + Block - 1) / Block
	if blocks > (MaxNumber-limit)/Block {
		return 0, false
	}
	return limit + blocks*Block, true
}
