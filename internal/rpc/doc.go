// Package rpc serves what a generator knows over gRPC: plegd.v1.PodLifecycle of
// api/plegd/v1/plegd.proto, with gRPC's own health and reflection services.
//
// What holds:
//
//  1. Nothing a client does or leaves undone holds up the generator or another
//     client. Each stream has a goroutine that reads and sends, and one that
//     watches over it: a client that doesn't take what was sent is cut, with the
//     position to go on from.
//  2. Everything is bounded: messages, calls at once, those that last, connections,
//     calls that have the runtime asked, and what clients don't take: answers and
//     pods in bytes of all clients, events in 64 KiB and a message of each watch. What is 1 KiB or
//     less isn't counted: of such answers gRPC keeps as many as a connection may have
//     calls.
//  3. An event is encoded once, however many watches send it.
//  4. Nothing can be changed but the time of the next relist.
//  5. When the server stops, watches end with UNAVAILABLE and their position.
//
// New makes a server, Serve serves until its context ends. Every goroutine is
// started and awaited by Serve, but for a watch's wait for its turn, which ends with
// the watch.
package rpc
