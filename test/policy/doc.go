// Package policy holds the rules of the design that a compiler can't check and a reviewer overlooks:
//
//  1. The arbiter's core and the timestamps are deterministic: same state and same input, same
//     output. So they read no clock, start no goroutine, take no lock and do no I/O.
//  2. Imports run one way: timestamps ◄ store ◄ arbiter ◄ evented, generic ◄ root ◄ cmd.
//  3. The public packages, and the modules that a user of the library takes in with them, are few
//     and named here; a new one is a decision, not an accident.
//
// The rules read syntax trees only: they need no build and see every file, whatever its build tags.
// Each has a test that shows it a violation, so that a rule that went blind fails.
package policy
