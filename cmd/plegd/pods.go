package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	pleg "github.com/plegd/plegd"
)

// podsOptions are the flags of `plegd pods`.
type podsOptions struct {
	clientOptions
	filterOptions
	form  form
	watch bool
}

// newPods makes `plegd pods`.
func newPods(std streams) *cobra.Command {
	o := podsOptions{clientOptions: clientOptions{std: std}}
	cmd := &cobra.Command{
		Use:        "pods",
		SuggestFor: []string{"get", "list", "ps"},
		Short:      "List the pods of a running agent",
		Long: "pods lists what the agent on --socket knows of all pods, from its cache. With --watch it goes\n" +
			"on with a line for each pod that changes.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.clientOptions.complete(cmd); err != nil {
				return err
			}
			if _, err := o.selection(); err != nil {
				return err
			}
			return o.ask(cmd, o.run)
		},
	}
	o.clientOptions.addTo(cmd, defaultTimeout, "bound of finding the agent and of its answer")
	o.addPods(cmd)
	formFlag(cmd, &o.form, formTable, formWide, outputJSON, formYAML, formName, formTemplate)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "go on with the pods that change")
	colorFlag(cmd, &o.color)
	return cmd
}

// podList is what is known of all pods, as /v1/pods has it.
type podList struct {
	Position string     `json:"position"`
	Pods     []pleg.Pod `json:"pods"`
}

// run lists the pods, and watches them if asked to.
func (o *podsOptions) run(ctx context.Context, agent *agentClient) error {
	if o.watch {
		return o.runWatch(ctx, agent)
	}
	list, err := agent.pods(ctx, o.request())
	if err != nil {
		return err
	}
	if o.form.structured() { // in the agent's own order
		return o.form.write(o.std.out, list)
	}
	slices.SortStableFunc(list.Pods, podOrder)
	if o.form.name == formName {
		return writeNames(o.std.out, list.Pods)
	}
	if len(list.Pods) == 0 {
		o.note("no pods")
		return nil
	}
	t := podTable(o.form.name == formWide, colored(o.color, o.std))
	for i := range list.Pods {
		t.add(podRow(&list.Pods[i], time.Now(), o.form.name == formWide)...)
	}
	return t.write(o.std.out)
}

// podOrder is by namespace and name, the newest pod of a name first.
func podOrder(a, b pleg.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		podCreated(&b).Compare(podCreated(&a)), cmp.Compare(a.Key, b.Key))
}

// podTable returns the table of pods.
func podTable(wide, colors bool) *table {
	t := &table{header: []string{"NAMESPACE", "POD", "STATE", "CONTAINERS", "RESTARTS", "AGE", "IP"}, colored: colors}
	if wide {
		t.header = append(t.header, "UID", "SANDBOX", "POSITION")
	}
	return t
}

// podRow returns the row of a pod.
func podRow(p *pleg.Pod, now time.Time, wide bool) []cell {
	state := podState(p)
	shown := state
	if p.Restored {
		shown += " (restored)"
	}
	running, all := runningContainers(p)
	row := []cell{
		field(p.Namespace), field(cmp.Or(p.Name, p.Key)), {printable(shown), stateColor(state)}, {text: fmt.Sprintf("%d/%d", running, all)},
		{text: strconv.FormatUint(restarts(p), 10)}, {text: age(now, podCreated(p))}, field(p.IP),
	}
	if wide {
		sandbox := ""
		if len(p.Sandboxes) > 0 {
			sandbox = shortened(p.Sandboxes[0].ID)
		}
		row = append(row, field(p.UID), field(sandbox), field(p.Position))
	}
	return row
}

// podState is the state of the current sandbox; a pod of which only containers
// are left has none.
func podState(p *pleg.Pod) string {
	if len(p.Sandboxes) == 0 {
		return "-"
	}
	return p.Sandboxes[0].State
}

// podCreated is when the current sandbox was created.
func podCreated(p *pleg.Pod) time.Time {
	if len(p.Sandboxes) == 0 {
		return time.Time{}
	}
	return p.Sandboxes[0].CreatedAt
}

// newestContainers returns the last attempt of each container, by name.
func newestContainers(p *pleg.Pod) []*pleg.Container {
	var list []*pleg.Container
	for i := range p.Containers { // ordered by name, then attempt
		c := &p.Containers[i]
		if n := len(list); n > 0 && list[n-1].Name == c.Name {
			list[n-1] = c
			continue
		}
		list = append(list, c)
	}
	return list
}

// runningContainers counts the containers that run, and all, each name once.
func runningContainers(p *pleg.Pod) (running, all int) {
	list := newestContainers(p)
	for _, c := range list {
		if c.State == "running" {
			running++
		}
	}
	return running, len(list)
}

// restarts counts the attempts after the first of all containers.
func restarts(p *pleg.Pod) (n uint64) {
	for _, c := range newestContainers(p) {
		n += uint64(c.Attempt)
	}
	return n
}

// podName is how a pod is named on the command line: NAMESPACE/NAME, or its key
// where it has no name.
func podName(p *pleg.Pod) string {
	if p.Name == "" {
		return p.Key
	}
	return p.Namespace + "/" + p.Name
}

// writeNames writes names that `plegd pod` and `plegd wait` take.
func writeNames(w io.Writer, pods []pleg.Pod) error {
	var b strings.Builder
	for i := range pods {
		b.WriteString(printable(podName(&pods[i])) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shortened is how much of an id people are shown.
func shortened(id string) string { return id[:min(len(id), shortID)] }

// age says how long ago something was, as kubectl does; "-" if that is unknown.
func age(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(then)))
}
