// Command mutation breaks the rules of docs/design.md on purpose, one at a time, and shows which test
// notices. It is `make mutation`:
//
//	mutation [-run regexp] [-missing] [-docs docs/proof.md]
//
// A mutant is a line or two of one file, replaced (the table: table_*.go). It is built with the Go
// command's -overlay, so that neither the tree nor a copy of it ever holds a broken rule. Its package's
// test binary runs twice: all transcripts of the arbiter's core, and then the tests that the mutant names.
// Of the core's own tests all that fail are noted, of others the first.
//
// Before all of them the same tests run with nothing broken, and have to pass.
//
// A run fails when a mutant survives, no longer applies, or doesn't compile. The lines of what was run are
// written into the table in docs/proof.md: it is measured, not believed. Random tests run from a fixed
// seed, so that the table is the same each time.
package main
