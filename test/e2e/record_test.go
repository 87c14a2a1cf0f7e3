package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/logtest"
)

// replay runs plegd replay with JSON events.
func replay(t *testing.T, path string, flags ...string) (out []byte, events []event) {
	t.Helper()
	cmd := exec.Command(binary(), append([]string{"replay", "--input", path, "--output", "json"}, flags...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("replay: %v\n%s", err, &stderr)
	}
	for line := range bytes.Lines(out) {
		e, err := parseEvent(line)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return out, events
}

// What a real runtime said in the life of a pod is recorded, and each mode tells of it
// again what it would have told.
func TestRecordAndReplay(t *testing.T) {
	t.Parallel()
	for _, f := range []flavour{containerd2, containerd16} {
		t.Run(f.name, func(t *testing.T) {
			needBinary(t)
			rt := startContainerd(t, f)
			path := filepath.Join(workDir(t, "record"), "r.plegd")
			cmd := exec.Command(binary(), "record", "--runtime-endpoint", "unix://"+rt.socket, "--output", path)
			var said logtest.Buffer
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			eventually(t, settle, "the runtime is recorded", func() error {
				if !strings.Contains(said.String(), "runtime answers") {
					return errors.New(said.String())
				}
				return nil
			})
			p := rt.runPod(t, "recorded")
			id := p.run(t, "main", 0, "exit", "7", "1500ms")
			truth := rt.exited(t, id)
			time.Sleep(1500 * time.Millisecond) // a list is between its end and its removal
			p.stop(t)
			p.remove(t)
			eventually(t, settle, "all is in the file", func() error {
				_, events := replay(t, path)
				if got := trace(events, p.sandbox); got != wholeSandbox {
					return fmt.Errorf("life of the sandbox is %q", got)
				}
				return nil
			})
			time.Sleep(3 * time.Second) // with lists alone it is told later: by the second one that lacks it
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil || !strings.HasSuffix(said.String(), "; asked to stop\n") {
				t.Errorf("record ended with %v:\n%s", err, said.String())
			}
			for _, mode := range []string{"hybrid", "generic", "evented"} {
				if mode == "evented" && !f.stream {
					continue
				}
				out, events := replay(t, path, "--mode", mode)
				if got := trace(events, id); got != wholeContainer {
					t.Errorf("%s: life of the container is %q", mode, got)
				}
				died, _ := find(events, "ContainerDied", id)
				if died.ExitCode.String() != "7" || died.Pod.UID != p.uid {
					t.Errorf("%s: %v", mode, died)
				}
				checkTime(t, died, truth.GetFinishedAt())
				checkOrder(t, events)
				if again, _ := replay(t, path, "--mode", mode); !bytes.Equal(out, again) {
					t.Errorf("%s: once more it tells\n%s\nfirst it told\n%s", mode, again, out)
				}
			}
		})
	}
}
