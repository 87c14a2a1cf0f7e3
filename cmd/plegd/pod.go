package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/client"
)

// podOptions are the flags of `plegd pod`.
type podOptions struct {
	clientOptions
	form  form
	newer bool
}

// newPodCommand makes `plegd pod`.
func newPodCommand(std streams) *cobra.Command {
	o := podOptions{clientOptions: clientOptions{std: std}}
	cmd := &cobra.Command{
		Use:   "pod KEY|NAMESPACE/NAME",
		Short: "Show one pod of a running agent",
		Long: "pod shows what the agent on --socket knows of one pod, from its cache, or with --newer after\n" +
			"asking the runtime. The pod is named by its key, which is its UID or, where it has none,\n" +
			"sandbox: and the id of its sandbox; or by its namespace and name.",
		Args: exactly("KEY|NAMESPACE/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.clientOptions.complete(cmd); err != nil {
				return err
			}
			name, err := parsePodName(args[0])
			if err != nil {
				return err
			}
			return o.ask(cmd, func(ctx context.Context, agent *agentClient) error { return o.run(ctx, agent, name) })
		},
	}
	o.clientOptions.addTo(cmd, defaultTimeout, "bound of finding the agent and of its answer")
	cmd.Flags().BoolVar(&o.newer, "newer", false, "have the runtime asked first")
	formFlag(cmd, &o.form, formTable, outputJSON, formYAML, formTemplate)
	colorFlag(cmd, &o.color)
	return cmd
}

// podRef names a pod: by its key, or by namespace and name.
type podRef struct{ key, namespace, name string }

// String is the ref as it was given.
func (r podRef) String() string {
	if r.key != "" {
		return r.key
	}
	return r.namespace + "/" + r.name
}

// parsePodName reads KEY or NAMESPACE/NAME.
func parsePodName(s string) (podRef, error) {
	namespace, name, named := strings.Cut(s, "/")
	switch {
	case s == "" || named && (namespace == "" || name == "" || strings.Contains(name, "/")):
		return podRef{}, usagef("pod %.200q: must be a key, such as a UID, or NAMESPACE/NAME", s)
	case named:
		return podRef{namespace: namespace, name: name}, nil
	default:
		return podRef{key: s}, nil
	}
}

// filter chooses the pod.
func (r podRef) filter() *client.Filter {
	if r.key != "" {
		return &client.Filter{Uids: []string{r.key}}
	}
	return &client.Filter{Namespaces: []string{r.namespace}, Pods: []string{r.name}}
}

// run shows the pod.
func (o *podOptions) run(ctx context.Context, agent *agentClient, name podRef) error {
	p, err := o.find(ctx, agent, name)
	if err != nil {
		return err
	}
	if o.form.structured() {
		return o.form.write(o.std.out, p)
	}
	return describePod(o.std.out, &p, time.Now(), colored(o.color, o.std))
}

// find asks for the pod. Of several with one name, as there are while one takes
// the place of another, it is the newest.
func (o *podOptions) find(ctx context.Context, agent *agentClient, name podRef) (pleg.Pod, error) {
	key := name.key
	if key == "" {
		list, err := agent.pods(ctx, name.filter())
		if err == nil && len(list.Pods) == 0 && o.newer {
			if _, err = agent.relist(ctx); err == nil {
				list, err = agent.pods(ctx, name.filter())
			}
		}
		if err != nil {
			return pleg.Pod{}, err
		}
		slices.SortStableFunc(list.Pods, podOrder)
		switch {
		case len(list.Pods) == 0:
			return pleg.Pod{}, fmt.Errorf("pod %.200q: %w", name, client.ErrNoPod)
		case len(list.Pods) > 1:
			o.note("%d pods are named %s; this is the newest, plegd pods -o wide has the UIDs of all", len(list.Pods), name)
		}
		if !o.newer {
			return list.Pods[0], nil
		}
		key = list.Pods[0].Key
	}
	p, err := agent.pod(ctx, key, o.newer)
	switch {
	case errors.Is(err, client.ErrNoPod) && name.key != "":
		err = fmt.Errorf("pod %.200q: %w has this key; by its name a pod is NAMESPACE/NAME", name, client.ErrNoPod)
	case errors.Is(err, client.ErrNoPod):
		err = fmt.Errorf("pod %.200q: %w", name, client.ErrNoPod)
	}
	return p, err
}

// describePod writes what is known of a pod for people.
func describePod(w io.Writer, p *pleg.Pod, now time.Time, colors bool) error {
	var b strings.Builder
	line := func(name, text string) { fmt.Fprintf(&b, "%-11s %s\n", name, text) }
	line("pod", printable(podName(p)))
	line("uid", dash(printable(p.UID)))
	state := podState(p)
	line("state", paint(state, stateColor(state), colors)+restoredWord(p.Restored))
	line("age", age(now, podCreated(p)))
	line("ip", dash(printable(strings.Join(p.IPs, ", "))))
	labels := make([]string, 0, len(p.Labels))
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		labels = append(labels, printable(key+"="+p.Labels[key]))
	}
	line("labels", dash(strings.Join(labels, ", ")))
	line("position", printable(p.Position))

	b.WriteByte('\n')
	t := &table{header: []string{"SANDBOX", "ATTEMPT", "STATE", "REPORTED", "AGE", "IP", "NOTE"}, colored: colors}
	for i := range p.Sandboxes {
		s := &p.Sandboxes[i]
		t.add(field(shortened(s.ID)), number(s.Attempt), cell{printable(s.State), stateColor(s.State)}, field(s.Reported), cell{text: age(now, s.CreatedAt)},
			field(strings.Join(s.IPs, ", ")), field(notes(hostWord(s.HostNetwork), s.Restored, s.Incarnation, s.Error)))
	}
	if err := t.write(&b); err != nil {
		return err
	}
	if len(p.Sandboxes) > 0 && len(p.Containers) > 0 {
		b.WriteByte('\n')
	}
	t = &table{header: []string{"CONTAINER", "ATTEMPT", "STATE", "REPORTED", "EXIT", "SINCE", "ID", "IMAGE", "NOTE"}, colored: colors}
	for i := range p.Containers {
		c := &p.Containers[i]
		t.add(field(c.Name), number(c.Attempt), cell{printable(c.State), stateColor(c.State)}, field(c.Reported), field(exitWord(c)), cell{text: age(now, lastChange(c))},
			field(shortened(c.ID)), field(c.Image), field(notes(c.Message, c.Restored, c.Incarnation, c.Error)))
	}
	if err := t.write(&b); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// number returns a cell for a number.
func number(n uint32) cell { return cell{text: fmt.Sprint(n)} }

// restoredWord marks what was not seen in this run of the agent yet.
func restoredWord(restored bool) string {
	if restored {
		return " (restored)"
	}
	return ""
}

func hostWord(host bool) string {
	if host {
		return "host network"
	}
	return ""
}

// notes joins what only some sandboxes and containers have.
func notes(first string, restored bool, incarnation uint32, err string) string {
	list := []string{first}
	if restored {
		list = append(list, "restored")
	}
	if incarnation > 1 {
		list = append(list, fmt.Sprintf("incarnation %d", incarnation))
	}
	if err != "" {
		list = append(list, "inspection failed: "+err)
	}
	return strings.Join(slices.DeleteFunc(list, func(s string) bool { return s == "" }), "; ")
}

// exitWord is how a container exited.
func exitWord(c *pleg.Container) string {
	if c.ExitCode == nil {
		if c.State == "exited" {
			return "unknown"
		}
		return ""
	}
	text := fmt.Sprint(*c.ExitCode)
	if c.Reason != "" {
		text += " " + c.Reason
	}
	return text
}

// lastChange is when a container came into its state, as far as the runtime
// said.
func lastChange(c *pleg.Container) time.Time {
	switch c.State {
	case "exited":
		return c.FinishedAt
	case "running":
		return c.StartedAt
	}
	return c.CreatedAt
}
