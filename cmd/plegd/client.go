package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/client"
)

const (
	// socketEnv names the agent's socket for the commands that are clients.
	socketEnv = "PLEGD_SOCKET"
	// defaultTimeout is ample for an answer from an agent's memory, also where
	// nodes are busy.
	defaultTimeout = 10 * time.Second
)

// errTimeout is wrapped where --timeout has passed.
var errTimeout = errors.New("--timeout has passed")

// clientOptions are the flags of every command that asks a running agent.
type clientOptions struct {
	std     streams
	socket  string
	timeout time.Duration
	color   string
	wait    bool   // for an agent that isn't there yet
	named   string // the variable that names the socket, if one does
}

// addTo adds the flags that all of them have.
func (o *clientOptions) addTo(cmd *cobra.Command, timeout time.Duration, what string) {
	o.timeout = timeout
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.socket, "socket", "", "unix socket of the agent, /path or unix:///path (default: "+socketEnv+", else "+defaultSocket+")")
	durationFlag(f, &o.timeout, "timeout", what)
}

// complete finds out which socket is meant.
func (o *clientOptions) complete(cmd *cobra.Command) error {
	given := o.socket
	if !cmd.Flags().Changed("socket") {
		if given = o.std.getenv(socketEnv); given != "" {
			o.named = socketEnv
		} else {
			given = defaultSocket
		}
	}
	path, err := socketPath(given)
	if err != nil && !cmd.Flags().Changed("socket") {
		return usagef("%s%s", socketEnv, strings.TrimPrefix(err.Error(), "--socket"))
	}
	o.socket = path
	return err
}

// note tells people something beside the output.
func (o *clientOptions) note(format string, args ...any) {
	fmt.Fprintln(o.std.err, "plegd: "+printable(fmt.Sprintf(format, args...)))
}

// ask has do ask the agent, until the command is to end.
func (o *clientOptions) ask(cmd *cobra.Command, do func(context.Context, *agentClient) error) error {
	ctx, end := untilAsked(cmd.Context(), o.std.out)
	defer end()
	agent, err := o.connect()
	if err != nil {
		return err
	}
	defer agent.close()
	return stopped(ctx, o.whence(do(ctx, agent)))
}

// whence names the variable that a socket without an agent is from: it may have been set
// long ago, and for another agent.
func (o *clientOptions) whence(err error) error {
	if err == nil || o.named == "" || !nobodyAnswers(err) {
		return err
	}
	return fmt.Errorf("%w (the socket is that of %s)", err, o.named)
}

// What is said of an agent that goes away and comes back.
const agentLost, agentBack = "lost the agent, trying again", "the agent is back"

// agentClient is a running agent that is asked. Each call has --timeout.
type agentClient struct {
	*client.Client
	timeout time.Duration
}

// connect returns the agent. Watches that lose it go on when it is back, and say
// both.
func (o *clientOptions) connect() (*agentClient, error) {
	lost, back := func(error) string { return agentLost }, agentBack+", going on where it ended"
	if o.wait {
		lost, back = missing, "an agent answers"
	}
	return o.connectWith(client.Options{
		Wait:         o.wait,
		Disconnected: func(why error) { o.note("%s: %v", lost(why), why) },
		Reconnected:  func() { o.note("%s", back) },
	})
}

// missing says what is missing for who waits for an agent.
func missing(why error) string {
	if nobodyAnswers(why) {
		return "no agent answers, trying again"
	}
	return "the agent can't tell yet, trying again"
}

// nobodyAnswers reports whether an error is about the socket, and not what an agent
// says.
func nobodyAnswers(err error) bool {
	_, nobody := errors.AsType[*client.SocketError](err)
	return nobody
}

func (o *clientOptions) connectWith(options client.Options) (*agentClient, error) {
	if info, err := os.Stat(o.socket); err == nil && info.Mode()&fs.ModeSocket == 0 {
		return nil, fmt.Errorf("socket %s: %w: it is another kind of file; see --socket", o.socket, client.ErrUnavailable)
	}
	c, err := client.Dial(o.socket, options)
	if err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	return &agentClient{c, o.timeout}, nil
}

// close ends the connection. There is nothing to do about an error.
func (a *agentClient) close() { _ = a.Close() }

// bounded makes a call that --timeout bounds.
func bounded[T any](ctx context.Context, a *agentClient, call func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	v, err := call(limited)
	if err != nil && ctx.Err() == nil && (limited.Err() != nil || outOfTime(err)) {
		return v, a.late()
	}
	return v, err
}

// late is the error of an agent that has not answered within --timeout.
func (a *agentClient) late() error {
	return fmt.Errorf("plegd at %s has not answered after %v: %w", a.Socket(), a.timeout, errTimeout)
}

// outOfTime reports whether a call ended for its deadline, which the agent has
// too: it may end the call by it, as cancelled, a moment before the caller does.
func outOfTime(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// status asks how the agent is.
func (a *agentClient) status(ctx context.Context) (agentStatus, error) {
	s, err := bounded(ctx, a, a.Status)
	return statusOf(s), err
}

// pods lists the pods that a filter chooses.
func (a *agentClient) pods(ctx context.Context, filter *client.Filter) (podList, error) {
	return bounded(ctx, a, func(ctx context.Context) (podList, error) {
		pods, position, err := a.Pods(ctx, filter, client.PodOptions{})
		list := podList{Position: position, Pods: make([]pleg.Pod, len(pods))}
		for i, p := range pods {
			list.Pods[i] = podOfAPI(p)
		}
		return list, err
	})
}

// pod asks for one pod by its key, newer than now if so wished.
func (a *agentClient) pod(ctx context.Context, key string, newer bool) (pleg.Pod, error) {
	var o client.PodOptions
	if newer {
		o.NewerThan = time.Now()
	}
	p, err := bounded(ctx, a, func(ctx context.Context) (*client.Pod, error) { return a.Pod(ctx, key, o) })
	return podOfAPI(p), err
}

// relist has the runtime listed, and returns the position of the newest event
// then.
func (a *agentClient) relist(ctx context.Context) (string, error) {
	return bounded(ctx, a, func(ctx context.Context) (string, error) { return a.Relist(ctx, true) })
}

// readAhead is how many updates may wait for whoever writes them.
const readAhead = 256

// each watches and calls do with each update, and idle whenever there is none
// more for now: so what is written is neither held back, nor written bit by bit
// while much comes. It ends with the first error, and with nil at the end of a
// watch that has one. Both functions are called from the caller's goroutine, and
// a panic of the watch is raised again there.
func (a *agentClient) each(ctx context.Context, o client.WatchOptions, idle func() error, do func(*client.Update) error) error {
	ctx, cancel := context.WithCancel(ctx)
	type result struct {
		update   *client.Update
		err      error
		panicked any
	}
	results := make(chan result, readAhead)
	go func() {
		defer close(results)
		defer func() {
			if p := recover(); p != nil {
				send(ctx, results, result{panicked: p})
			}
		}()
		for u, err := range a.Watch(ctx, o) {
			if !send(ctx, results, result{update: u, err: err}) {
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range results { // until the watch has ended
		}
	}()
	for {
		if len(results) == 0 {
			if err := idle(); err != nil {
				return err
			}
		}
		r, ok := <-results
		switch {
		case !ok:
			return ctx.Err()
		case r.panicked != nil:
			panic(r.panicked)
		case r.err != nil:
			return r.err
		}
		if err := do(r.update); err != nil {
			return err
		}
	}
}

// nothingIdle is for who writes nothing as it comes.
func nothingIdle() error { return nil }

// send sends unless ctx ends before.
func send[T any](ctx context.Context, to chan<- T, v T) bool {
	select {
	case to <- v:
		return true
	case <-ctx.Done():
		return false
	}
}

// untilAsked returns a context that ends when the command is to end: with a
// signal, or when the reader of stdout has gone away. end releases what this
// needs.
func untilAsked(parent context.Context, out io.Writer) (ctx context.Context, end func()) {
	signalled, release := stopOnSignal(parent)
	ctx, cancel := context.WithCancel(signalled)
	gone := watchReader(ctx, out, cancel)
	return ctx, func() {
		cancel()
		gone()
		release()
	}
}

// stopped returns nil for the error of a command that was asked to stop.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// exactly requires one argument, whose form is said.
func exactly(form string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usagef("%s takes one argument, %s; see %s --help", cmd.CommandPath(), form, cmd.CommandPath())
		case len(args) > 1:
			return atMostOne(cmd, args)
		}
		return nil
	}
}
