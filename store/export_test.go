package store

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// EncodeSchema is for tests that need files of other versions.
var EncodeSchema = encodeSchema

// ScanPages is for tests of the scan alone.
var ScanPages = scanPages

// OpenToCompact is for tests of what happens to a file between that and the
// compaction itself, for which Rescue stands.
var OpenToCompact = openToCompact

// VerifyNoLeaks runs the tests and fails if goroutines are left.
var VerifyNoLeaks = func(m *testing.M) { goleak.VerifyTestMain(m) }

// FailWrites puts the memory of another process in place of the open file, so
// that the kernel answers writes to it with EIO; what is mapped stays. restore
// puts the file back.
func FailWrites(t *testing.T, b *Bolt, pid int) (restore func()) {
	t.Helper()
	fd := int(b.file.Fd())
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		t.Skipf("SKIPPED: this test needs the memory of another process: %v", err)
	}
	t.Cleanup(func() { _ = mem.Close() })
	saved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(saved) })
	put := func(from int) {
		if err := unix.Dup3(from, fd, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	put(int(mem.Fd()))
	return func() { put(saved) }
}
