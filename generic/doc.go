// Package generic asks the CRI runtime: everything once per period, and single
// pods, sandboxes and containers when the arbiter's core wants to know. It
// holds no state of pods and tells no events; what it finds goes to the
// arbiter as it was answered, with the ticks of sending and answer.
//
// How to use it
//
//  1. [New] a [Relister] and call its Run once; all goroutines are Run's and
//     have ended when it returns.
//  2. Hand every arbiter.Action to [Relister.Do]. The loop may call it: it
//     never blocks.
//  3. Tell it of the stream ([Relister.StreamChanged]), of each verdict on a
//     full list ([Relister.Judged]), of other doubt ([Relister.Shrink]) and of
//     another version of the runtime ([Relister.Renew]): they move the period.
//
// Invariants
//
//  1. The sent stamp of a call is taken right before it is sent and the
//     answered stamp right after its answer, per call: the two calls of a list
//     are not one snapshot.
//  2. Every action ends in exactly one submission, failures too, and actions
//     with one key that wait together are one; only the end of Run leaves
//     actions unanswered, and a call that failed because Run ends is not
//     submitted as a failure of the runtime.
//  3. The period counts from the end of a relist. It stretches only while the
//     stream is up and relists are clean, and falls back at once.
//  4. One full list is in flight at most, one call per entity, two inspections
//     per pod, MaxInspections that are quick and 16 times as many that hang. All
//     but the full lists take a token each from a bucket (CallRate, CallBurst).
//  5. A question about one pod waits for no other pod longer than patience (a
//     second at most), nor for a stretched period; see below.
//  6. Time comes in by Config.Clock alone, but for the deadlines of calls.
//
// What hangs. A container whose shim is stuck makes its status call hang, and
// ten such pods would use up ten slots for as long as a call may take. So an
// inspection that has run for a second, or for a tenth of that while others wait,
// no longer counts against MaxInspections, and one that did so the last time
// doesn't count from its start; such calls have a bound of their own. One that ended by its deadline is not repeated
// before three more timeouts have passed, because the runtime is likely to be
// busy with it still (containerd/containerd#13814). All this is forgotten when
// full lists had failed and work again: then it was the runtime that hung.
//
// What fails. The core counts attempts and persists them; here an attempt
// becomes a delay of 200 ms doubling to 5 minutes. A failed full list brings
// the period back to its base and is tried again after it; those that the core
// asks for meanwhile are one list with a delay that grows, so that they add
// nothing to the periodic ones and are not all sent once lists work again.
package generic
