// Package note leaves notes: a channel of capacity 1 that says that something
// has happened since its reader last looked, however often it did.
package note

// Leave leaves a note in a channel of capacity 1. It never blocks.
func Leave(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // there is one already
	}
}

// Take takes a note that was left before, if there is one.
func Take(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}
