package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/selection"
)

// filterOptions are the flags that choose events and pods.
type filterOptions struct {
	filter selection.Filter
}

// addPods adds those that pods can be chosen by.
func (o *filterOptions) addPods(cmd *cobra.Command) {
	f := cmd.Flags()
	f.VarP(&listValue{&o.filter.Namespaces, "names"}, "namespace", "n", "only of these namespaces")
	f.Var(&listValue{&o.filter.Pods, "names"}, "pod", "only of pods with these names")
	f.Var(&listValue{&o.filter.UIDs, "uids"}, "uid", "only of pods with these UIDs, or keys where they have none")
	f.Var(&listValue{&o.filter.Containers, "names"}, "container", "only of containers with these names")
	f.VarP(&selectorValue{&o.filter.Labels}, "selector", "l", "only of pods whose labels fit, as of kubectl: app=web,tier in (a,b),!canary")
}

// addEvents adds those too that only events have.
func (o *filterOptions) addEvents(cmd *cobra.Command) {
	o.addPods(cmd)
	f := cmd.Flags()
	f.Var(&listValue{&o.filter.Types, "types"}, "type", "only events of these types, such as ContainerDied")
	f.Var(&listValue{&o.filter.Sources, "sources"}, "source", "only events first seen in these: stream, relist, inspect")
	// They fail for a flag that doesn't exist only.
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(selection.Words(selection.EventTypes), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("source", cobra.FixedCompletions(selection.Words(selection.Sources), cobra.ShellCompDirectiveNoFileComp))
}

// listValue is a flag for several words: it may be repeated, and one value may
// have several, with commas between them.
type listValue struct {
	to   *[]string
	kind string
}

// Set implements [pflag.Value]. An empty word is left for selection to refuse: it
// is a script's variable that isn't set, and must not choose everything.
func (v *listValue) Set(s string) error {
	*v.to = append(*v.to, strings.Split(s, ",")...)
	return nil
}

// String implements [pflag.Value].
func (v *listValue) String() string {
	if v.to == nil {
		return ""
	}
	return strings.Join(*v.to, ",")
}

// Type implements [pflag.Value].
func (v *listValue) Type() string { return v.kind }

// selectorValue is a flag for a label selector. An empty one chooses everything, so
// who gives it has a variable that isn't set.
type selectorValue struct{ to *string }

// Set implements [pflag.Value].
func (v *selectorValue) Set(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("must not be empty")
	}
	*v.to = s
	return nil
}

// String implements [pflag.Value].
func (v *selectorValue) String() string {
	if v.to == nil {
		return ""
	}
	return *v.to
}

// Type implements [pflag.Value].
func (v *selectorValue) Type() string { return "string" }

// selection understands the flags as the agent would. Errors name the flag.
func (o *filterOptions) selection() (*selection.Selection, error) {
	s, err := selection.New(o.filter)
	var bad *selection.KeyError
	if errors.As(err, &bad) {
		return nil, usagef("--%s %.200q: %s", bad.Key, bad.Value, bad.Reason)
	}
	return s, err
}

// request is what the agent is asked for.
func (o *filterOptions) request() *plegdv1.Filter {
	f := &o.filter
	return &plegdv1.Filter{
		Namespaces: f.Namespaces, Pods: f.Pods, Uids: f.UIDs, Containers: f.Containers, LabelSelector: f.Labels,
		Types: f.Types, Sources: f.Sources,
	}
}
