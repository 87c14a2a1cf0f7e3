// Package pleg is plegd's library: a hybrid Pod Lifecycle Event Generator with
// persistent state, for one CRI runtime. The module's path ends in plegd, so
// an import needs the name:
//
//	import pleg "github.com/plegd/plegd"
//
// A [Generator] reads the runtime's GetContainerEvents stream and relists
// periodically. Both are observations for one arbiter, which decides what is
// true and journals each change once, in a bbolt file that survives restarts.
// The relist period stretches while the stream is healthy.
//
// Use it in four steps:
//
//  1. [New] opens the state and prepares the connection. It does not wait for
//     the runtime.
//  2. [Generator.Run] works until its context ends. Run it in a goroutine of
//     your own and wait for it.
//  3. [Generator.Subscribe] reads events, from now or from a position that an
//     earlier run gave out; [Generator.Pod], [Generator.PodNewer] and
//     [Generator.Pods] read the present state.
//  4. [Generator.Health] says what is wrong, with reasons.
//
// Guarantees
//
//   - Events of one epoch have strictly growing numbers; a number never holds
//     two contents. Each state is told once per incarnation of an entity, in
//     order; the order of different entities is that of arrival.
//   - What readers see is durable: events and pods alike.
//   - A runtime that fails, hangs or restarts removes nothing: an entity is
//     removed when two witnesses agree.
//   - A reader that stops reading holds up nobody, least of all the runtime.
//
// All methods of a Generator are safe for concurrent use.
package pleg
