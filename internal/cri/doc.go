// Package cri talks to one CRI runtime over a unix socket and turns what it
// answers into the arbiter's terms. It is the only package that knows gRPC.
//
// [Dial] returns a [Client] with the calls plegd makes: Version, the two lists,
// the two status calls and the event stream. [Sandboxes], [Containers],
// [SandboxStatus], [ContainerStatus] and [Event] convert.
//
// Invariants
//
//  1. Every unary call and every list returns no later than its deadline, even
//     if the runtime never answers and ignores the cancellation. The event
//     stream has no deadline.
//  2. A failed, short or undecodable answer is an error, never an empty one
//     (rule O4). Only code NotFound means that an entity is gone: texts such as
//     "not found" under code Unknown prove nothing.
//  3. A streamed list counts once its end was received; parts are thrown away.
//  4. The client sends no pings: not for keepalive and, as its flow-control
//     windows are fixed, not for estimating bandwidth. Runtimes run gRPC's
//     default enforcement and answer pings with GOAWAY (grpc/proposal A8).
//  5. Conversion never fails and never panics. Missing parts stay zero, numbers
//     outside an enum are kept, text is valid UTF-8 and bounded, times of
//     entities before 1970 are 0, items without an id are dropped and counted.
//  6. Conversion is a function of the message alone, so that a runtime which
//     says the same twice causes no write.
//
// Text that isn't UTF-8. Protobuf forbids it and protobuf-go refuses the whole
// message for one bad byte, but runtimes built with gogo/protobuf (containerd
// up to 1.7, CRI-O up to 1.33) send it unchecked. One bad annotation must not
// blind the agent, so such a message is decoded with the bad bytes replaced by
// U+FFFD. A message that can't be decoded at all fails its call; on the event
// stream it comes out as an error that wraps [ErrMalformed], after which the
// stream goes on.
//
// A Client is safe for concurrent use. It starts no goroutines of its own, but
// gRPC does: they end with [Client.Close].
package cri
