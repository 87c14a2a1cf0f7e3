package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// Another user is refused unless the socket's group lets him in, and is told what to
// do about it.
func TestClientOfAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	const nobody = 65534
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	newPod(t, rt, "web")
	dir := newAgentDir(t)
	binary := filepath.Join(string(dir), "plegd") // where go test has it nobody else may enter
	err := os.Link(os.Args[0], binary)
	if errors.Is(err, syscall.EXDEV) {
		var code []byte
		if code, err = os.ReadFile(os.Args[0]); err == nil {
			err = os.WriteFile(binary, code, 0o755)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	refused := "plegd: socket " + dir.socket() + ": permission denied: connect as root"
	for _, tc := range []struct {
		group  string      // of the socket
		folder os.FileMode // of its directory
		code   int
		stderr string
	}{
		{"0", 0o755, exitUnavailable, refused + ": its mode is 0660 and its group root; plegd run --socket-group lets a group in"},
		{"31999", 0o755, exitUnavailable, refused + ", or as a member of its group 31999"},
		{fmt.Sprint(nobody), 0o755, exitOK, ""},
		{fmt.Sprint(nobody), 0o700, exitUnavailable, refused + ", or have the socket moved to a directory that you may enter (plegd run --socket)"},
	} {
		agent := start(t, dir.args(endpoint, "--output", "none", "--socket-group", tc.group)...)
		dir.awaitReady(t)
		for path, mode := range map[string]os.FileMode{string(dir): 0o711, filepath.Dir(dir.socket()): tc.folder} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
		for _, cmd := range []string{"status", "pods", "events", "top"} {
			c := startAs(t, childConfig{binary: binary, as: &syscall.Credential{Uid: nobody, Gid: nobody}}, cmd, "--socket", dir.socket())
			out, err := io.ReadAll(c.out)
			if err != nil {
				t.Fatal(err)
			}
			code, stderr := c.code(patience), strings.TrimSpace(c.stderr.String())
			if code != tc.code || stderr != tc.stderr || (len(out) > 0) != (code == exitOK) {
				t.Errorf("%s, group %s, directory %o: code %d, %d bytes, %q\nwant %q", cmd, tc.group, tc.folder, code, len(out), stderr, tc.stderr)
			}
		}
		agent.terminate()
	}
}
