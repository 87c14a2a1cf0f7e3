package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// A process that is stopped (SIGSTOP, a debugger, a frozen cgroup) can't help
// itself, and its event stream stays open: the kernel holds the socket. On
// containerd 2.x a subscriber that doesn't read holds up whoever creates and
// removes containers. So somebody else has to end it: systemd, to which the
// agent sends WATCHDOG=1, or with --watchdog a small parent process, to which
// it sends the same sign over a pipe.

const (
	// pipeEnv tells an agent that it is supervised: the descriptor of the pipe
	// and the supervisor's process id, as in 3:4711.
	pipeEnv = "PLEGD_WATCHDOG_PIPE"
	// notifyEnv is systemd's, see sd_notify(3).
	notifyEnv = "NOTIFY_SOCKET"
	// signsPerLimit signs of life are due within the limit: some may be late on
	// a busy machine.
	signsPerLimit = 8
	// minWatchdog: below this an agent on a busy machine may fail to be on time.
	minWatchdog = time.Second
	// killedTimeout is how long a child may take to go that has done its work or
	// was killed. One that hangs in
	// the kernel is left behind: its sockets are closed when it gets out.
	killedTimeout = 5 * time.Second
)

// errStalled is wrapped by what a supervisor returns that had to kill.
var errStalled = errors.New("no sign of life")

// childError is how a supervised agent ended. It has said why itself, unless a
// signal ended it.
type childError struct {
	code   int
	signal syscall.Signal // 0 for none
}

func (e *childError) Error() string {
	if e.signal != 0 {
		return fmt.Sprintf("--watchdog: the agent was ended by a signal (%v)", e.signal)
	}
	return fmt.Sprintf("agent ended with code %d", e.code)
}

// supervise runs this program once more as a child in a process group of its
// own, passes signals on, and returns a childError when the child has ended
// with a code. When no sign of life came for the limit it kills the child and
// returns errStalled: whoever started plegd starts it again, and readers go on
// from the last position that they saw.
func supervise(limit time.Duration, args []string) error {
	signs, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("--watchdog: %w", err)
	}
	defer func() { _ = signs.Close() }() // only read from
	got := make(chan os.Signal, 16)
	forwarded := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) { // else the child inherits that
		forwarded = append(forwarded, syscall.SIGHUP)
	}
	signal.Notify(got, forwarded...)
	defer signal.Stop(got)

	child := exec.Command("/proc/self/exe", args...) // the same program also when its file was replaced
	child.Args[0] = os.Args[0]
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.ExtraFiles = []*os.File{write} // descriptor 3
	child.Env = append(os.Environ(), fmt.Sprintf("%s=3:%d", pipeEnv, os.Getpid()))
	// A group of its own: what stops this one from a terminal doesn't stop it.
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = child.Start()
	_ = write.Close() // the child has its own
	if err != nil {
		return fmt.Errorf("--watchdog: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = child.Wait() // the code is in ProcessState
	}()
	alive, closed := readSigns(signs)
	return watchChild(child, limit, alive, closed, got, ended)
}

// readSigns reads signs of life. alive has one if any came since it was last
// looked at; closed is closed with the pipe.
func readSigns(signs io.Reader) (alive, closed <-chan struct{}) {
	came, end := make(chan struct{}, 1), make(chan struct{})
	go func() { // ends with the pipe
		defer close(end)
		for b := make([]byte, 64); ; {
			if _, err := signs.Read(b); err != nil {
				return
			}
			select {
			case came <- struct{}{}:
			default:
			}
		}
	}()
	return came, end
}

// watchChild counts periods without a sign of life rather than time: while this
// process is stopped too, none pass.
func watchChild(child *exec.Cmd, limit time.Duration, alive, closed <-chan struct{}, got <-chan os.Signal, ended <-chan struct{}) error {
	tick := time.NewTicker(limit / signsPerLimit)
	defer tick.Stop()
	stalled := fmt.Errorf("%w for %v; it was stopped, or made no progress", errStalled, limit)
	for missed := 0; ; {
		select {
		case <-ended:
			return childEnd(child.ProcessState)
		case <-closed: // it has let go of everything and is about to end
			closed, alive = nil, nil // a sign that is left counts no more
			tick.Reset(killedTimeout)
			missed = signsPerLimit - 1
			stalled = fmt.Errorf("%w for %v; it had let go of everything, and did not end", errStalled, killedTimeout)
		case sig := <-got:
			_ = child.Process.Signal(sig) // it may have ended just now
		case <-alive:
			missed = 0
		case <-tick.C:
			if missed++; missed < signsPerLimit {
				continue
			}
			_ = child.Process.Kill()
			select {
			case <-ended:
			case <-time.After(killedTimeout):
			}
			return fmt.Errorf("--watchdog: the agent was killed: %w", stalled)
		}
	}
}

// childEnd returns how a child ended, nil for code 0.
func childEnd(s *os.ProcessState) error {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return &childError{128 + int(ws.Signal()), ws.Signal()} // as shells say it
	}
	if s.ExitCode() == exitOK {
		return nil
	}
	return &childError{code: s.ExitCode()}
}

// takeName gives this process the name of its program for who lists processes: one that was
// started as /proc/self/exe is called exe.
func takeName() {
	_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0) //nolint:gosec // the file is there; and it is only a name
}

// supervised returns the descriptor of the pipe to the supervisor. A variable
// that was left in the environment by another one is none: its process is not
// our parent, or what the descriptor is now is no pipe.
func supervised(getenv func(string) string) (fd int, ok bool) {
	text, parent, _ := strings.Cut(getenv(pipeEnv), ":")
	fd, err := strconv.Atoi(text)
	if err != nil || parent != strconv.Itoa(os.Getppid()) {
		return 0, false
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		return 0, false
	}
	return fd, true
}

// supervisor returns the pipe to the supervisor, nil if there is none.
func supervisor(getenv func(string) string) *os.File {
	fd, ok := supervised(getenv)
	if !ok {
		return nil
	}
	syscall.CloseOnExec(fd)
	_ = syscall.SetNonblock(fd, true) // so that a write can have a deadline
	return os.NewFile(uintptr(fd), pipeEnv)
}

// signsOfLife sends signs of life to whoever wants them, systemd or a
// supervisor, until stop is called, each only while alive says so. gone is called when
// there is no supervisor any more: then nobody would end a stopped agent.
func signsOfLife(o runOptions, getenv func(string) string, alive func() bool, gone func()) (stop func()) {
	send, every := func() error { return nil }, time.Duration(0)
	pipe := supervisor(getenv)
	switch {
	case pipe != nil && o.watchdog > 0:
		every = o.watchdog / signsPerLimit
		send = func() error {
			_ = pipe.SetWriteDeadline(time.Now().Add(every)) // the supervisor may be stopped itself
			_, err := pipe.Write([]byte{'.'})
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			return err
		}
	case getenv(notifyEnv) != "":
		if limit, err := daemon.SdWatchdogEnabled(false); err == nil {
			every = limit / signsPerLimit // 0 without a watchdog
		}
		send = func() error { _, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog); return nil } // systemd may be restarting
	}
	if every <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		beat := func() {
			if alive() && send() != nil {
				gone()
				cancel()
			}
		}
		beat()
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				beat()
			}
		}
	}()
	return func() {
		cancel()
		<-done
		if pipe != nil {
			_ = pipe.Close() // nothing is buffered
		}
	}
}

// tellSystemd tells systemd, if it wants to be told, of a state.
func tellSystemd(state string) {
	briefly(func() { _, _ = daemon.SdNotify(false, state) }) // it may be restarting
}
