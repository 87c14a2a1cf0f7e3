package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/compare"
)

const (
	// startTimeout is how long the simulated runtime may take until it serves.
	startTimeout = 30 * time.Second
	// stopTimeout is how long it may take to end.
	stopTimeout = 5 * time.Second
)

// Simulated is a simulated runtime in a process of its own, with pods that come
// and go. It implements trial.Load.
type Simulated struct {
	spec  Spec
	dir   string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{}
	err   error // how it ended
	said  bytes.Buffer
}

// Simulate starts one. command is that of a program that does what `plegd
// simulate` does, takes its flags and --history FILE beside, and ends with its
// stdin; more are further flags, for faults.
func Simulate(ctx context.Context, spec Spec, command, more []string) (*Simulated, error) {
	dir, err := os.MkdirTemp("", "plegd-sim") // short: a socket lies in it
	if err != nil {
		return nil, fmt.Errorf("simulated runtime: %w", err)
	}
	s := &Simulated{spec: spec, dir: dir, ended: make(chan struct{})}
	args := append(command[1:len(command):len(command)],
		"--socket", s.Socket(), "--history", s.history(), "--seed", strconv.FormatUint(spec.Seed, 10),
		"--pods", strconv.Itoa(spec.Pods), "--rate", strconv.FormatFloat(spec.Rate, 'g', -1, 64))
	if spec.Containers > 0 {
		args = append(args, "--containers", strconv.Itoa(spec.Containers))
	}
	if spec.Profile != "" {
		args = append(args, "--profile", spec.Profile)
	}
	s.cmd = exec.Command(command[0], append(args, more...)...)
	s.cmd.Stderr = &s.said
	// Ctrl-C is for the comparison, which needs the runtime to its end.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("simulated runtime: %w", err), os.RemoveAll(dir))
	}
	return s, nil
}

// start starts the process and waits until it serves.
func (s *Simulated) start(ctx context.Context) (err error) {
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	serves := make(chan struct{})
	go func() {
		defer close(s.ended)
		lines := bufio.NewReader(out)
		if _, err := lines.ReadString('\n'); err == nil {
			close(serves)
		}
		_, _ = io.Copy(io.Discard, lines)
		s.err = s.cmd.Wait()
	}()
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-serves:
		return nil
	case <-s.ended:
		said := strings.TrimSpace(s.said.String())
		if said == "" {
			return fmt.Errorf("ended at its start: %w", s.err)
		}
		return errors.New(strings.TrimPrefix(said, "plegd: ")) // its own words
	case <-timer.C:
		s.stop()
		return fmt.Errorf("does not serve within %v", startTimeout)
	case <-ctx.Done():
		s.stop()
		return ctx.Err()
	}
}

// Socket is the path that it serves on.
func (s *Simulated) Socket() string  { return filepath.Join(s.dir, "cri.sock") }
func (s *Simulated) history() string { return filepath.Join(s.dir, "history") }

// stop ends the process.
func (s *Simulated) stop() {
	_ = s.stdin.Close()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-s.ended:
	case <-timer.C:
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// Begin implements trial.Load: pods come and go from the start.
func (s *Simulated) Begin(context.Context) error { return nil }

// Halt implements trial.Load. The pods go on: what happens after the measurement
// is not judged.
func (s *Simulated) Halt() {}

// Remove implements trial.Load. It ends the runtime.
func (s *Simulated) Remove() error {
	s.stop()
	return nil
}

// Close removes what is left of it on disk, and ends it if Remove has not.
func (s *Simulated) Close() error {
	s.stop()
	return os.RemoveAll(s.dir)
}

// History implements trial.Load. A last line that was cut off by a kill is left out.
func (s *Simulated) History() ([]compare.Happened, error) {
	text, err := os.ReadFile(s.history())
	if err != nil {
		return nil, err
	}
	var all []compare.Happened
	for line := range bytes.Lines(text) {
		var h compare.Happened
		if err := json.Unmarshal(line, &h); err != nil {
			if !bytes.HasSuffix(line, []byte("\n")) {
				break
			}
			return nil, fmt.Errorf("line %d: %w", len(all)+1, err)
		}
		all = append(all, h)
	}
	return all, nil
}

// Failed returns "": the runtime does its load itself.
func (s *Simulated) Failed() string { return "" }

// Words implements trial.Load.
func (s *Simulated) Words() string { return s.spec.Words() }
