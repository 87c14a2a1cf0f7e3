//go:build race

package replay

// shuffled says that goroutines run in any order: with the race detector in it, Go's
// scheduler leaves that to chance.
const shuffled = true
