// Package crowd bounds how many connections a server has. When it is crowded a new
// one takes the place of the one that has been without a call for longest: clients
// that keep connections for later, or forget them, or make them without end and say
// nothing, keep nobody out for long.
//
// A [Crowd] lets connections in, by [Crowd.Enter] or behind a listener ([Crowd.Door]),
// and its server tells each of them, a [Guest], of the calls that begin and end on it.
//
//  1. A connection with a call is never closed for another one.
//  2. From three quarters of all places on one that has been without a call for
//     [Config.Settle] makes room, and when all are taken after a moment already: who
//     connects to make a call does so at once.
//  3. When all places are in use a new connection finds none: [Crowd.Enter] says so,
//     and a Door has it wait, and those after it in the listener's queue.
package crowd
