package checkchild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/plegd/plegd/store"
)

// ErrUnfinished: the check did not end before its deadline. Either the file
// makes bbolt go round in circles, or the machine is too slow.
var ErrUnfinished = errors.New("check did not end")

// Checker starts the children. It is safe for concurrent use.
type Checker struct {
	// Command is the child: a program and arguments to which the path of the
	// file is added. It must call Main with its stdin and stdout.
	Command []string
	// Env is added to the child's environment.
	Env []string
	// Timeout is how long a check may take.
	Timeout time.Duration
}

// Self returns a Checker that starts this program with arguments.
func Self(timeout time.Duration, args ...string) (Checker, error) {
	self, err := os.Executable()
	if err != nil {
		return Checker{}, fmt.Errorf("own program: %w", err)
	}
	return Checker{Command: append([]string{self}, args...), Timeout: timeout}, nil
}

const (
	// maxOutput is how much of what a child writes is used. A panic writes the
	// stacks of all goroutines.
	maxOutput = 4 << 10
	// killDelay is how long to wait for a killed child's pipes.
	killDelay = time.Second
)

// Check has a child check the file at path. Nobody may write to the file
// meanwhile. The error wraps [store.ErrDamaged] when the file is at fault or
// the check crashed on it, and [ErrUnfinished] when it did not end in time or
// before ctx did, and the child was killed; any other says that there was no
// check.
func (c Checker) Check(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Command[0], append(c.Command[1:len(c.Command):len(c.Command)], path)...) //nolint:gosec // ourselves
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.WaitDelay = killDelay
	var out, trouble head
	cmd.Stdout, cmd.Stderr = &out, &trouble
	alive, err := cmd.StdinPipe() // ends with us, so the child does too
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	defer alive.Close()
	err = cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w in %v", ErrUnfinished, c.Timeout)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("check: %w", err)
	}
	switch exit.ExitCode() {
	case codeDamaged:
		return fmt.Errorf("%w: %s", store.ErrDamaged, out.line())
	case codeCrashed:
		return fmt.Errorf("%w: the check crashed: %s", store.ErrDamaged, trouble.line())
	case codeOther:
		return fmt.Errorf("check: %s", out.line())
	default: // killed by somebody else, such as for want of memory
		return fmt.Errorf("check: %w", err)
	}
}

// head keeps the beginning of what is written to it.
type head struct{ buf bytes.Buffer }

// Write implements [io.Writer].
func (h *head) Write(p []byte) (int, error) {
	h.buf.Write(p[:min(len(p), maxOutput-h.buf.Len())])
	return len(p), nil
}

// line returns the first line.
func (h *head) line() string {
	line, _, _ := strings.Cut(strings.TrimSpace(h.buf.String()), "\n")
	return line
}
