// Package criserver serves the CRI on a unix socket, for reading only: existing
// clients get from plegd what they would ask the runtime for, and none of them
// can change anything.
//
// A method is served in one of three ways (methods.go):
//
//   - From the cache: lists and statuses of sandboxes and containers, and the
//     event stream. They cost the runtime nothing.
//   - Passed through: what plegd doesn't keep, such as versions, statistics and
//     images. Requests that are alike share one call, and its answer for a
//     moment. The verbose forms too, but their answers are as new as the request.
//   - Refused, with PERMISSION_DENIED: everything else, so also what a later
//     version of the CRI adds.
//
// Invariants
//
//  1. What is not in the table of methods is refused before its request is read.
//  2. Nothing is served from the cache of which plegd knows that it may be wrong
//     (doubts, see trust.go): then the runtime is asked, by a call that begins
//     after the request, or the answer is UNAVAILABLE with the reason, as
//     configured.
//  3. A list item is what the runtime's list says, a status what its status call
//     says. They differ, in image names for one, and neither can be made of the
//     other; so the items are kept beside the cache (shelf.go).
//  4. A client that is slow, stopped or many holds up neither the runtime nor
//     another client; one that doesn't keep up with events is cut with
//     RESOURCE_EXHAUSTED.
//  5. Connections, streams, requests, answers that are kept, answers that clients
//     don't take (unsent.go) and calls in flight are bounded, and how many calls at a
//     time work on a copy of the cache. Connections without a call make room for
//     others.
//
// Messages that are kept or shared are never changed once others can see them.
package criserver
