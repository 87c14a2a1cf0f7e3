package client

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// Who is refused is told who may connect.
func TestSocketErrorOfPermission(t *testing.T) {
	path := t.TempDir() + "/s"
	lis, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	refused := &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
	for _, tt := range []struct {
		mode os.FileMode
		gid  int
		want string
	}{
		{0o660, 31999, "permission denied: connect as root, or as a member of its group 31999"},
		{0o660, 0, "permission denied: connect as root: its mode is 0660 and its group root; plegd run --socket-group lets a group in"},
		{0o600, 31999, "permission denied: connect as root: its mode is 0600 and its group 31999; plegd run --socket-group lets a group in"},
	} {
		if err := errors.Join(os.Chmod(path, tt.mode), os.Chown(path, -1, tt.gid)); err != nil {
			t.Skip(err) // it takes root
		}
		err := newSocketError(path, refused)
		if got := err.Error(); got != "socket "+path+": "+tt.want || !errors.Is(err, fs.ErrPermission) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v", got)
		}
	}
	if err := newSocketError("/nowhere/s", refused); !strings.Contains(err.Error(), "a directory that you may enter") {
		t.Error(err)
	}
}
