package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/client"
)

// waitTimeout is how long is waited by default, as kubectl does.
const waitTimeout = 30 * time.Second

// waitOptions are the flags of the commands below `plegd wait`.
type waitOptions struct {
	clientOptions
	state string
}

// newWait makes `plegd wait`.
func newWait(std streams) *cobra.Command {
	return group(&cobra.Command{
		Use:   "wait",
		Short: "Wait until a pod or container has reached a state",
		Long: "wait returns with code 0 once the state is reached, at once if it is already, and with code " +
			fmt.Sprint(exitTimeout) + " if\n--timeout passes before. It waits for a pod or container that isn't there yet, and for an agent\n" +
			"that isn't. Each state that it sees is a line on stdout. A pod's name without its namespace is an\n" +
			"error with --for removed while such a pod is there.",
	}, newWaitFor(std, "pod", "KEY|NAMESPACE/NAME", stateReady, stateNotReady, stateRemoved, stateCreated),
		newWaitFor(std, "container", "KEY/NAME|NAMESPACE/POD/NAME", stateRunning, stateExited, stateRemoved))
}

// The states that can be waited for.
const (
	stateCreated  = "created"
	stateReady    = "ready"
	stateNotReady = "notready"
	stateRunning  = "running"
	stateExited   = "exited"
	stateRemoved  = "removed"
)

// waitWords says when each state of pods and of containers counts as reached.
var waitWords = map[string]string{
	"pod": "ready: a sandbox of the pod is. notready: it has one, and none that is or may become ready.\n" +
		"created: it exists. removed: nothing is left of it, or it never was.",
	"container": "running: an attempt of the container runs. exited: there is one, and none that runs or may.\n" +
		"removed: no attempt is left, or there never was one.",
}

// newWaitFor makes `plegd wait pod` or `plegd wait container`.
func newWaitFor(std streams, kind, form string, states ...string) *cobra.Command {
	o := waitOptions{clientOptions: clientOptions{std: std, wait: true}}
	cmd := &cobra.Command{
		Use:   kind + " " + form,
		Short: "Wait until a " + kind + " has reached a state",
		Long:  waitWords[kind],
		Args:  exactly(form),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.clientOptions.complete(cmd); err != nil {
				return err
			}
			if o.state == "" {
				return usagef("--for is required: one of %s", strings.Join(states, ", "))
			}
			target, err := newWaitTarget(kind, form, args[0])
			if err != nil {
				return err
			}
			return o.ask(cmd, func(ctx context.Context, agent *agentClient) error { return o.run(ctx, agent, target) })
		},
	}
	choiceFlag(cmd, &o.state, "for", "the state to wait for (required)", states...)
	o.clientOptions.addTo(cmd, waitTimeout, "how long to wait")
	return cmd
}

// waitTarget is the pod or container that is waited for.
type waitTarget struct {
	text      string // as it was given
	pod       podRef
	container string // "" for a pod
}

// newWaitTarget reads what a target is called: a container's name comes after
// its pod's.
func newWaitTarget(kind, form, s string) (waitTarget, error) {
	t := waitTarget{text: s}
	pod := s
	if kind == "container" {
		i := strings.LastIndexByte(s, '/')
		if i <= 0 || i == len(s)-1 {
			return t, usagef("container %.200q: must be %s", s, form)
		}
		pod, t.container = s[:i], s[i+1:]
	}
	var err error
	if t.pod, err = parsePodName(pod); err != nil {
		return t, usagef("%s %.200q: must be %s", kind, s, form)
	}
	return t, nil
}

// kind is what the target is.
func (t *waitTarget) kind() string {
	if t.container != "" {
		return "container"
	}
	return "pod"
}

// filter chooses what belongs to the target.
func (t *waitTarget) filter() *client.Filter {
	f := t.pod.filter()
	if t.container != "" {
		f.Containers = []string{t.container}
	}
	return f
}

// run waits until signalled ends.
func (o *waitOptions) run(signalled context.Context, agent *agentClient, target waitTarget) error {
	ctx, cancel := context.WithTimeout(signalled, o.timeout)
	defer cancel()
	seen := waitSeen{target: target, state: o.state}
	err := agent.WaitFor(ctx, target.filter(), func(pods []*client.Pod) (bool, error) {
		first := !seen.known
		seen.look(pods)
		if first && seen.now == nil {
			if err := o.unnamed(ctx, agent, &target); err != nil {
				return false, err
			}
		}
		if line, changed := seen.line(); changed {
			if _, err := fmt.Fprintln(o.std.out, printable(line)); err != nil {
				return false, err
			}
		}
		return seen.reached(), nil
	})
	switch {
	case err == nil:
		return nil
	case signalled.Err() != nil:
		return fmt.Errorf("%s %s: was asked to stop before it is %s", target.kind(), target.text, o.state)
	case ctx.Err() != nil || outOfTime(err):
		return fmt.Errorf("%s %.200q is not %s after %v, %s: %w", target.kind(), target.text, o.state, o.timeout, seen.last(err), errTimeout)
	}
	return err
}
