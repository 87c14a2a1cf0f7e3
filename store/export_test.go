package store

import (
	"testing"

	"go.uber.org/goleak"
)

// EncodeSchema is for tests that need files of other versions.
var EncodeSchema = encodeSchema

// ScanPages is for tests of the scan alone.
var ScanPages = scanPages

// VerifyNoLeaks runs the tests and fails if goroutines are left.
var VerifyNoLeaks = func(m *testing.M) { goleak.VerifyTestMain(m) }
