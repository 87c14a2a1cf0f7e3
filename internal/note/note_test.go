package note

import "testing"

// TestOneNoteIsEnough: leaving never blocks, and the reader finds one.
func TestOneNoteIsEnough(t *testing.T) {
	c := make(chan struct{}, 1)
	Take(c)
	for range 3 {
		Leave(c)
	}
	if len(c) != 1 {
		t.Errorf("%d notes", len(c))
	}
	if Take(c); len(c) != 0 {
		t.Error("it is still there")
	}
}
