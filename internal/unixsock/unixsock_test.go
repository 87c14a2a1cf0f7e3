package unixsock_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/unixsock"
)

func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	lis, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	lis.SetUnlinkOnClose(false)
	t.Cleanup(func() { _ = lis.Close() })
	return lis
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestStaleSocketIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	_ = listen(t, path).Close()
	if err := unixsock.ClearStale(path); err != nil || exists(path) {
		t.Errorf("error %v, file there: %v", err, exists(path))
	}
	if err := unixsock.ClearStale(path); err != nil {
		t.Errorf("nothing there: %v", err)
	}
}

func TestWhatIsNotRemoved(t *testing.T) {
	dir := t.TempDir()
	live, file := filepath.Join(dir, "live"), filepath.Join(dir, "file")
	listen(t, live)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unixsock.ClearStale(live); !errors.Is(err, unixsock.ErrInUse) || !exists(live) {
		t.Errorf("live socket: %v", err)
	}
	if err := unixsock.ClearStale(file); err == nil || !strings.Contains(err.Error(), "not a socket") || !exists(file) {
		t.Errorf("file: %v", err)
	}
	if err := unixsock.ClearStale(filepath.Join(file, "s")); err == nil {
		t.Error("below a file: no error")
	}
}

// The constant is the kernel's.
func TestMaxPathIsTheKernels(t *testing.T) {
	dir, err := os.MkdirTemp("", "us")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	longest := filepath.Join(dir, strings.Repeat("x", unixsock.MaxPath-len(dir)-1))
	listen(t, longest)
	if _, err := net.Listen("unix", longest+"x"); err == nil {
		t.Error("a longer path fits too")
	}
}
