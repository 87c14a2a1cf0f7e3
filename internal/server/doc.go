// Package server serves what a generator knows over HTTP: health and metrics
// on TCP, health, the API, the web page and what helps to find faults on a unix
// socket.
//
//	TCP               /livez /readyz /metrics
//	 with Config.API  also /v1/… /openapi.json and the page, / and /page/…
//	unix socket       /livez /readyz /v1/… /openapi.json / /page/… /debug/…
//
// What holds:
//
//  1. TCP shows nothing of pods unless it is asked to: whoever can log in to a
//     node can connect to its loopback. The socket's mode decides who may read
//     those. What TCP then has of the API answers only to its own names, with
//     the token if there is one, and without one only on loopback.
//  2. Nothing a client does or leaves undone holds up the generator: handlers
//     read copies; connections, streams, headers and times are bounded.
//  3. Only GET and HEAD are answered, and PUT of /debug/loglevel, on the socket:
//     how much is logged is all that can be changed.
//  4. A socket on which somebody answers is never taken over.
//  5. Half an answer is never taken for a whole one: a stream of events that was
//     to end ends with a bookmark, one that fails with an error.
//
// New takes the addresses, Run serves until its context ends. Every goroutine
// is started and awaited by Run.
package server
