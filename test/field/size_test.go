package field_test

import "os"

// full says whether cases have the size in which they were seen in the field
// (make field-long), or one that fits into every run of the tests.
var full = os.Getenv("PLEGD_FIELD_LONG") == "1"

// size chooses a case's size.
func size[N any](short, field N) N {
	if full {
		return field
	}
	return short
}
