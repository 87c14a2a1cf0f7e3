package unixsock_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/plegd/plegd/internal/unixsock"
)

// mode is that of the file at path.
func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode()
}

func TestSocketModeAndEnd(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o077} {
		path := filepath.Join(t.TempDir(), "run", "s")
		if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		old := syscall.Umask(mask) // no test of this package is parallel
		s, err := unixsock.Listen(path, unixsock.GroupMode)
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		if got := mode(t, path); got != os.ModeSocket|unixsock.GroupMode {
			t.Errorf("umask %o: mode %v", mask, got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if exists(path) {
			t.Error("the socket is left behind")
		}
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := unixsock.Listen(path, unixsock.GroupMode)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

func TestWhatIsNotReplaced(t *testing.T) {
	t.Run("a live socket", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		first, err := unixsock.Listen(path, unixsock.GroupMode)
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		if _, err := unixsock.Listen(path, unixsock.GroupMode); !errors.Is(err, unixsock.ErrInUse) {
			t.Errorf("error %v", err)
		}
		if !exists(path) {
			t.Error("the live socket was removed")
		}
	})
	t.Run("another file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s")
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := unixsock.Listen(path, unixsock.GroupMode); err == nil || !strings.Contains(err.Error(), "not a socket") {
			t.Errorf("error %v", err)
		}
		if b, err := os.ReadFile(path); string(b) != "mine" {
			t.Errorf("the file holds %q, %v", b, err)
		}
	})
	t.Run("no directory can be made", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := unixsock.Listen(filepath.Join(file, "s"), unixsock.GroupMode); err == nil {
			t.Error("no error")
		}
	})
}

// The socket of the next agent stays, though the first one closes late.
func TestCloseLeavesTheSuccessor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := unixsock.Listen(path, unixsock.GroupMode)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := unixsock.Listen(path, unixsock.GroupMode)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if !exists(path) {
		t.Error("the successor's socket was removed")
	}
}
