// Package evented holds the runtime's event stream open: it reads without ever
// blocking, stamps and converts each message, hands it on, and says what is
// known of the stream's health. It holds no state of pods and emits no events.
//
// How to use it: [New] a [Watcher], call its Run once, and call
// [Watcher.Reprobe] whenever a new connection to the runtime was made. What it
// finds goes to the arbiter.Sink of its Config.
//
// Invariants
//
//  1. The stream is always being read. A subscriber that stops reading stops
//     containerd 2.x from creating and removing containers and starves the
//     other subscribers of CRI-O. So nothing between Recv and the next Recv
//     waits: an event for which the arbiter has no room is thrown away and
//     counted.
//  2. StreamChanged with StreamUp is submitted before any event of that stream,
//     and so before the full list that the core asks for in answer: subscribe
//     first, list second.
//  3. Thrown away events, and messages that can't be decoded, are told as
//     StreamOverflow, the first at once and further ones together, at most one
//     each second; the core answers each with a full list.
//  4. Reconnection never ends. The delay grows and goes back only after real
//     progress, never because a stream was opened: opening proves nothing.
//  5. At most one stream is open at a time, and every goroutine has ended when
//     Run returns.
//  6. StreamChanged is submitted when the state changes, and when the reason why
//     the stream is not up changes in kind.
//
// When a stream counts as up. The CRI has no hello and no heartbeat, gRPC
// servers send no header before their first message, and both Unimplemented and
// the end of an unwanted stream arrive at the first Recv. So a stream is up with
// its first message, or when it has lasted for [Config.Grace] without ending. A
// runtime that accepts the stream and never says a word is not told from an idle
// one here; a list that finds what the stream should have told does that.
//
// When a stream is unsupported. Three ways to say so are known: code
// Unimplemented (containerd 1.6), an end without an error at once, twice in a row (CRI-O
// with pod events off, cri-o/cri-o#7164; a runtime that is about to stop ends a
// young stream so once), and [ErrRefused] from [Config.Admit], by
// which the caller keeps away from runtimes whose subscribers take events from
// each other (containerd 1.7, containerd/containerd#7318). All three are asked again every
// [Config.ProbeInterval] and at once after [Watcher.Reprobe]: the runtime may
// have been upgraded.
//
// Messages that can't be decoded end the stream in most clients. Here the
// Source says so with an error that wraps [ErrMalformed], and reading goes on.
package evented
