// Command makerun is `make run`: it runs plegd on this machine's CRI runtime, or on a simulated one
// if there is none. The choice is made here since the binary itself never falls back to a
// simulation.
//
//	makerun -plegd bin/plegd -dir .plegd -- [flags for plegd run]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/runtimes"
	"github.com/plegd/plegd/internal/unixsock"
)

// simulatorStart bounds the wait for the simulated runtime's first answer.
const simulatorStart = 10 * time.Second

func main() {
	// Pdeathsig is sent when the thread ends that started the process; the main thread doesn't.
	runtime.LockOSThread()
	plegd := flag.String("plegd", "bin/plegd", "plegd `binary`")
	dir := flag.String("dir", ".plegd", "`folder` for state and sockets")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	r := runner{plegd: *plegd, dir: *dir, args: flag.Args(), getenv: os.Getenv, usual: runtimes.Usual(), stdout: os.Stdout, stderr: os.Stderr}
	code, err := r.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "make run:", err)
		code = 1
	}
	os.Exit(code)
}

// runner holds what a run depends on.
type runner struct {
	plegd          string
	dir            string
	args           []string
	getenv         func(string) string
	usual          []string
	stdout, stderr io.Writer
}

// run runs the agent until it ends by itself or ctx does, and returns its exit code.
func (r runner) run(ctx context.Context) (code int, err error) {
	if err := refuse(r.args); err != nil {
		return 0, err
	}
	dir, err := filepath.Abs(r.dir)
	if err != nil {
		return 0, fmt.Errorf("folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("folder: %w", err)
	}
	chosen, err := choose(ctx, r.getenv("CONTAINER_RUNTIME_ENDPOINT"), r.usual, r.say)
	if err != nil {
		return 0, err
	}
	if chosen.socket == "" {
		chosen.name, chosen.socket = "simulated", filepath.Join(dir, "sim.sock")
		r.say("no CRI runtime answers on this machine: running on a SIMULATED one, %s", chosen.socket)
		end, err := r.simulate(ctx, chosen.socket)
		if err != nil {
			return 0, err
		}
		defer end()
	} else {
		r.say("running on %s, %s", chosen.name, chosen.socket)
	}

	// A state file describes one runtime, so each has a folder of its own.
	state := filepath.Join(dir, chosen.name)
	socket := filepath.Join(dir, "plegd.sock")
	if len(socket) > unixsock.MaxPath {
		return 0, fmt.Errorf("the path %s is too long for a unix socket: use a shorter folder", socket)
	}
	r.say("state in %s, API on %s; Ctrl-C ends it", state, socket)
	args := append([]string{"run", "--runtime-endpoint", "unix://" + chosen.socket, "--state-dir", state, "--socket", socket}, r.args...)
	return r.agent(ctx, args)
}

// refuse refuses flags for plegd that would contradict what is chosen and said here.
func refuse(args []string) error {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && slices.Contains([]string{"runtime-endpoint", "socket", "state-dir"}, name) {
			return fmt.Errorf("--%s can't be given in ARGS: make run chooses it; set CONTAINER_RUNTIME_ENDPOINT for another runtime, or use bin/plegd run", name)
		}
	}
	return nil
}

// say tells the user what is being done, apart from the events on stdout.
func (r runner) say(format string, args ...any) {
	fmt.Fprintf(r.stderr, "make run: "+format+"\n", args...)
}

// agent runs plegd and passes on the request to end.
func (r runner) agent(ctx context.Context, args []string) (code int, err error) {
	cmd := r.command(ctx, args...)
	err = cmd.Run()
	if cmd.ProcessState != nil && cmd.ProcessState.Exited() {
		return cmd.ProcessState.ExitCode(), nil
	}
	if ctx.Err() == nil {
		return 0, fmt.Errorf("run plegd: %w", err)
	}
	return 0, nil // a signal ended it, and it was asked to end
}

// simulate starts the simulated runtime and waits until it answers. end stops it.
func (r runner) simulate(ctx context.Context, socket string) (end func(), err error) {
	if len(socket) > unixsock.MaxPath {
		return nil, fmt.Errorf("the path %s is too long for a unix socket: use a shorter folder", socket)
	}
	// One that was killed has left its socket behind; one that lives answers and is in use.
	if _, err := runtimes.Probe(ctx, socket); err == nil {
		return nil, fmt.Errorf("%s is in use by another make run", socket)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("simulated runtime: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it outlives the agent
	// Ids follow from the seed, and a runtime never uses one twice: the state that the last make run
	// left must find other containers, as it would on a node where everything was replaced.
	seed := strconv.FormatInt(time.Now().Unix(), 10)
	cmd := r.command(ctx, "simulate", "--socket", socket, "--seed", seed)
	cmd.Stdout = r.stderr
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("simulated runtime: %w", err)
	}
	var ended error
	gone := make(chan struct{})
	go func() {
		ended = cmd.Wait()
		close(gone)
	}()
	end = func() {
		cancel()
		<-gone
	}
	for deadline := time.Now().Add(simulatorStart); ; time.Sleep(50 * time.Millisecond) {
		_, err := runtimes.Probe(ctx, socket)
		if err == nil {
			return end, nil
		}
		select {
		case <-gone:
			cancel()
			return nil, fmt.Errorf("simulated runtime ended at its start: %w", ended)
		default:
		}
		if time.Now().After(deadline) {
			end()
			return nil, fmt.Errorf("simulated runtime: %w", err)
		}
	}
}

// command prepares plegd; the end of ctx asks it to end, and kills it if it doesn't.
func (r runner) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.plegd, args...)
	cmd.Stdout, cmd.Stderr = r.stdout, r.stderr
	// Ctrl-C goes to every process of a group: in groups of their own the two are asked once each,
	// and in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}
