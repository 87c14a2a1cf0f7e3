// Package server serves what a generator knows over HTTP: health and metrics
// on TCP, those of health and the API on a unix socket.
//
//	TCP          /livez /readyz /metrics
//	unix socket  /livez /readyz /v1/status /v1/pods /v1/pods/{key}
//
// What holds:
//
//  1. TCP shows nothing of pods: whoever can log in to a node can connect to
//     its loopback. The socket's mode decides who may read those.
//  2. Nothing a client does or leaves undone holds up the generator: handlers
//     read copies; connections, headers and times are bounded.
//  3. Only GET and HEAD are answered. Nothing can be changed.
//  4. A socket on which somebody answers is never taken over.
//
// New takes the addresses, Run serves until its context ends. Every goroutine
// is started and awaited by Run.
package server
