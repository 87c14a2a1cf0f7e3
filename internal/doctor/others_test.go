package doctor

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestOthers finds the process that holds a connection, and what it leaves unread.
func TestOthers(t *testing.T) {
	dir, err := os.MkdirTemp("", "doctor") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "s.sock")
	lis, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	if all, err := others(path); err != nil || len(all) != 0 {
		t.Errorf("connected to nobody: %v, %v", all, err)
	}

	ours, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ours.Close() }()
	theirs, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := theirs.(*net.UnixConn).File()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	cmd.ExtraFiles = []*os.File{file}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	_, _ = theirs.Close(), file.Close()
	for i := range 2 {
		conn, err := lis.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if i == 1 {
			if _, err := conn.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) { // until it is sleep
		all, err := others(path)
		if err == nil && len(all) == 1 && all[0].PID == cmd.Process.Pid && all[0].Name == "sleep" && all[0].Unread >= 1000 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %v", all, err)
		}
	}
}
