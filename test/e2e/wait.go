package e2e

import (
	"os"
	"testing"
	"time"
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
