//go:build race

package pleg_test

// underRace tells whether the race detector watches, which costs ten times the
// memory and time: what is measured then says nothing.
const underRace = true
