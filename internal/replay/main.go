package replay

import (
	"context"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
)

// Main runs do in the world of a recording and ends the process with the code that it
// returns. do's context ends when the recording does. Main must be called outside of
// any goroutine but the main one, and nothing else of the process may go on then:
// virtual time passes while all of the world waits.
//
// What do writes to the standard output is all that is written there.
func Main(rec *Recording, do func(ctx context.Context, w *World) (code int)) {
	// testing reads the command line, and prints how the test ended.
	os.Args = []string{os.Args[0], "-test.timeout=0"}
	all := func(_, _ string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "Replay", F: func(t *testing.T) {
		code := rec.run(t, do)
		if t.Failed() || t.Skipped() {
			return // testing says why
		}
		os.Exit(code)
	}}}, nil, nil)
}

// run is Main inside of a test.
func (r *Recording) run(t *testing.T, do func(ctx context.Context, w *World) (code int)) (code int) {
	// What one answer sets off in several parts of a generator happens in one order then.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		w := newWorld(r, cancel)
		defer w.close()
		code = do(ctx, w)
	})
	return code
}
