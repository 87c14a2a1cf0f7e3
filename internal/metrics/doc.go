// Package metrics exports what a generator does as Prometheus metrics named
// plegd_*. docs/reference.md lists them.
//
// What holds:
//
//  1. Observing never blocks: it adds to counters. What has to be asked for
//     (queues, states, the journal) is asked for when metrics are collected.
//  2. The sets of label values are bounded, whatever a runtime answers or calls
//     its pods.
//  3. A series whose labels are known beforehand is there from the start, with
//     zero, so that the first increase is seen as one.
//
// A [Metrics] is the observer of every part of one generator; the zero Metrics
// observes nothing.
package metrics
