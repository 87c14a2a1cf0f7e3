package checkchild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
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

// Self returns a Checker that starts this program with arguments: the one that
// runs, also when another has replaced its file since, which may know nothing
// of checks.
func Self(timeout time.Duration, args ...string) Checker {
	return Checker{Command: append([]string{"/proc/self/exe"}, args...), Timeout: timeout}
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
// the check crashed on it, and [ErrUnfinished] when it did not end in time and
// the child was killed; any other says that there was no check. It wraps the
// cause of ctx when that ended the child.
func (c Checker) Check(ctx context.Context, path string) error {
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, c.Command[0], append(c.Command[1:len(c.Command):len(c.Command)], path)...) //nolint:gosec // ourselves
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
	// A child that ended by itself has a verdict, whatever else ended just then.
	switch code := cmd.ProcessState.ExitCode(); {
	case code == codeSound:
		return nil
	case code == codeDamaged:
		return fmt.Errorf("%w: %s", store.ErrDamaged, out.line())
	case code == codeCrashed && trouble.ofTheFile():
		return fmt.Errorf("%w: the check crashed: %s", store.ErrDamaged, trouble.line())
	case code == codeCrashed:
		return fmt.Errorf("check: the child failed: %s", trouble.line())
	case code == codeOther:
		return fmt.Errorf("check: %s", out.line())
	case ctx.Err() != nil:
		return fmt.Errorf("check was called off: %w", context.Cause(ctx))
	case limited.Err() != nil:
		return fmt.Errorf("%w in %v", ErrUnfinished, c.Timeout)
	default: // not started, or killed by somebody else, such as for want of memory
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

// crashes are how Go begins what it writes of a crash for which a damaged file
// can be the reason: a panic, a read outside of the file, and recursion without
// end. Go ends with the same code for want of threads or memory, and plegd for a
// command line that it doesn't know: neither says anything of the file.
var crashes = []string{"panic:", "unexpected fault address", "runtime: goroutine stack exceeds"}

// ofTheFile reports whether a crash is one of those.
func (h *head) ofTheFile() bool {
	line := h.line()
	return slices.ContainsFunc(crashes, func(c string) bool { return strings.HasPrefix(line, c) })
}
