// Package sim runs the whole agent in virtual time, against a simulated runtime
// and a store with faults, from a seed that decides everything. docs/proof.md
// says what is checked and how to run it.
package sim
