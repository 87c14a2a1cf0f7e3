package field_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// parallel is how many cases run at once: they wait more than they work.
const parallel = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", parallel); err != nil {
			panic(err) // the flag is the testing package's own
		}
	}
	goleak.VerifyTestMain(m)
}
