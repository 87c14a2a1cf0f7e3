// Package trial runs a comparison: each mode as a child process, all at the same
// time on one runtime, for a time or a number of transitions, and hands what they
// said to the judge of package compare.
//
// The course of a trial:
//
//  1. Start a child for each mode and wait until all are ready or have ended.
//  2. Start the load, if there is one of the trial's own. Measure.
//  3. Halt the load, so that what is there stays as it is, and wait as long as a
//     relist may take to come: what happened last may still be told.
//  4. Ask the modes for a closing relist, and to end. Only then is the load
//     removed.
//
// Whatever ends it early, a signal or a runtime that goes away, the report
// covers what was seen until then and says so. No child outlives [Run]; one
// whose parent was killed ends with its stdin.
package trial
