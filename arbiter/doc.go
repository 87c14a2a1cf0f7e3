// Package arbiter decides, from everything that the event stream and the calls
// to the runtime say, what is true of each sandbox and container and what
// happened, in order.
//
// It has two parts. [Core] is a deterministic state machine: Step(now, input)
// gives an [Output] and touches no clock, goroutine, lock, file or socket.
// [Loop] is the one owner of a Core: it takes all inputs that wait, steps,
// commits what changed in one transaction, publishes it to readers and hands
// the core's questions to those who ask the runtime.
//
// The caller's duties round a Core, in this order, for each Output:
//
//  1. Give every event a number from a durable block and write Changes in one
//     transaction. A batch whose outcome is unknown is written again unchanged.
//  2. Only then publish: events, records, then Fresh, Confirmed and Faults. While
//     nothing can be written, publish all the same, under numbers that no later
//     run can give out again, and write it later ([Core.Missing]).
//  3. Send Actions, at the latest now; submit whatever comes of each.
//  4. Step again with TimePassed at Wake, if nothing came before.
//
// Invariants (rules T, O and D of docs/design.md)
//
//  1. What an entity has reached depends on no clock.
//  2. Only an answer to a call can lower a state or prove a removal, and never
//     one alone.
//  3. A state is journaled once in an incarnation, in order, in the same
//     transaction that advances the record.
//  4. A known exit, start time or address is never replaced by an unknown one.
//  5. A failed call changes nothing but its own error.
//
// The package never calls the runtime.
package arbiter
