// Package timestamps holds the time types by which plegd orders what it is told.
//
// Order is causal, not wall-clock order. Every send of a call, every answer to
// one and every receipt of an event takes the next [Tick] of one [Counter]. A
// call's answer was true at some moment between its sending and its answer; an
// event's payload was true at some unknown moment before its receipt. Both are
// a [Span] of ticks, and spans are compared with [Span.After], [Span.Before]
// and [Span.Concurrent]. No time that a runtime reports takes part (rule T1 and
// T2 of docs/design.md).
//
// Runtime times (created_at and its kin) are shown to users and tell old from
// new, so they are checked: [Judge] names what is wrong with one. The agent's
// own wall clock is checked against its monotonic clock by [StepDetector].
//
// [Position] names an entry of the journal: a random [Epoch] and a number.
// Numbers are handed out by an [Allocator], only from blocks whose reservation
// the caller has made durable.
//
// Invariants
//
//  1. Ticks grow strictly within a process, and a process starts above every
//     tick that an earlier one committed.
//  2. A number is allocated at most once per epoch, is at least 1 and below
//     2^53, so that it survives JSON.
//  3. Nothing here reads a clock, a file or a socket: the wall clock, the
//     monotonic clock and the timers come in through [Clock].
//
// Units: wall times are nanoseconds since the Unix epoch (int64), monotonic
// times are [time.Duration] since an arbitrary start, ticks have no unit.
// A Counter is safe for concurrent use; all other types are plain values.
package timestamps
