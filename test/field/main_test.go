package field_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// parallel is how many cases run at once: they wait more than they work.
const parallel = "6"

func TestMain(m *testing.M) {
	if config := os.Getenv(agentEnv); config != "" {
		fmt.Fprintln(os.Stderr, beAgent(config))
		os.Exit(1)
	}
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
