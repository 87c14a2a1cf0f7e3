// Package unsent bounds what a gRPC server has to say and its clients have not
// taken. gRPC itself doesn't: the answer to a call of one answer is queued as a
// whole when its handler returns, and stays there until the client's flow control
// lets it go, which a client that doesn't read never does.
//
// A [Budget] is what may wait, of all clients of a server together:
//
//  1. A message has room before it is sent ([Budget.Hold]), and gives it back when
//     the transport has done with it, by its buffer ([Codec]), or its connection has
//     ended. One for which there is no room is not sent.
//  2. A list that comes in several messages takes its room before any of them is sent
//     ([Budget.TakeParts]). Each message takes its part of that along, so what has
//     begun is not broken off for want of room.
//  3. What is larger than all there may be is sent when nothing else waits.
//  4. A message that isn't taken in time ends its connection: nothing else frees the
//     memory.
//
// [Budget.Take] alone is for servers that keep what they send themselves. What need not
// be made, since it would not be sent, [Budget.Fits] tells.
package unsent
