package trial

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/plegd/plegd/internal/compare"
)

// kid is one mode in its process.
type kid struct {
	order compare.Child
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ready chan struct{} // closed when it is
	ended chan struct{} // closed when its process has ended and all lines are read
	err   tail

	mu    sync.Mutex
	trace compare.Trace
	fail  string // how the process ended, "" if well
}

// startKid starts a child. took is handed each line, by one goroutine for each
// child.
func startKid(command []string, order compare.Child, took func(compare.Line)) (*kid, error) {
	k := &kid{order: order, cmd: exec.Command(command[0], command[1:]...), ready: make(chan struct{}), ended: make(chan struct{})}
	k.trace.Mode = order.Mode
	k.cmd.Stderr = &k.err
	// A group of its own: Ctrl-C is for the parent, which then ends it in order.
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if k.stdin, err = k.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("mode %s: %w", order.Mode.Name, err)
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("mode %s: %w", order.Mode.Name, err)
	}
	line, err := json.Marshal(order)
	if err != nil {
		return nil, fmt.Errorf("mode %s: %w", order.Mode.Name, err)
	}
	if err := k.cmd.Start(); err != nil {
		return nil, fmt.Errorf("mode %s: %w", order.Mode.Name, err)
	}
	go k.read(out, took)
	_, _ = k.stdin.Write(append(line, '\n')) // one that has ended says why itself
	return k, nil
}

// read takes the lines until the process ends.
func (k *kid) read(out io.Reader, took func(compare.Line)) {
	defer close(k.ended)
	err := compare.ReadLines(out, func(l compare.Line) {
		k.mu.Lock()
		k.trace.Add(l)
		k.mu.Unlock()
		if l.Ready != nil {
			close(k.ready)
		}
		took(l)
	})
	_, _ = io.Copy(io.Discard, out) // after a line that is none the rest isn't worth reading, but it may block
	waited := k.cmd.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case err != nil:
		k.fail = err.Error()
	case waited != nil:
		k.fail = "its process ended: " + waited.Error()
	}
	if k.fail != "" && k.err.String() != "" {
		k.fail += ": " + k.err.String()
	}
}

// result is all that it said, once it has ended.
func (k *kid) result() *compare.Trace {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != "" && (k.trace.End == nil || k.trace.End.Err == "") {
		at := int64(0)
		if n := len(k.trace.Samples); n > 0 {
			at = k.trace.Samples[n-1].At
		}
		k.trace.End = &compare.End{At: at, Err: k.fail}
	}
	return &k.trace
}

// why says how it ended.
func (k *kid) why() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.trace.End != nil && k.trace.End.Err != "":
		return k.trace.End.Err
	case k.fail != "":
		return k.fail
	}
	return "it did not become ready"
}

func (k *kid) isReady() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trace.Ready != nil
}

// close asks it to end, after a relist or at once.
func (k *kid) close(relist bool) {
	if relist {
		if _, err := io.WriteString(k.stdin, compare.WordClose+"\n"); err == nil {
			return
		}
	}
	_ = k.stdin.Close()
}

// kill ends it now, if it has not ended. Its number is its own until read has
// waited for it.
func (k *kid) kill() {
	select {
	case <-k.ended:
	default:
		_ = k.cmd.Process.Kill()
	}
	_ = k.stdin.Close()
}

// tail keeps the last of what is written to it, on one line.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

// maxTail is how much of a child's stderr is kept: a panic's message and the
// first frames are at its begin, but a log's reason at its end.
const maxTail = 2000

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > maxTail {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-maxTail:]...)
	}
	return len(p), nil
}

// String implements [fmt.Stringer].
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(t.buf), "")), " ")
}

// Self is the command of a child that is this same program with the arguments,
// also when its file was replaced.
func Self(args ...string) []string { return append([]string{"/proc/self/exe"}, args...) }
