package e2e

import (
	"os"
	"testing"
	"time"
)

const (
	// settle is how long plegd may take to tell what happened. Without a stream that is a few relists:
	// a removal needs two witnesses.
	settle = time.Minute
	// longWait bounds waits for several periods. It says nothing of how fast the agent is.
	longWait = 90 * time.Second
)

// eventually waits until f returns nil, and fails the test with f's last error if it doesn't.
func eventually(t testing.TB, timeout time.Duration, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s: %v", timeout, what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// tail returns the last n bytes of a file, for a failure's report.
func tail(name string, n int) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-n):])
}
