package main

import (
	"errors"
	"fmt"

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
	f.StringSliceVarP(&o.filter.Namespaces, "namespace", "n", nil, "only of these namespaces")
	f.StringSliceVar(&o.filter.Pods, "pod", nil, "only of pods with these names")
	f.StringSliceVar(&o.filter.UIDs, "uid", nil, "only of pods with these UIDs, or keys where they have none")
	f.StringSliceVar(&o.filter.Containers, "container", nil, "only of containers with these names")
	f.StringVarP(&o.filter.Labels, "selector", "l", "", "only of pods whose labels fit, as of kubectl: app=web,tier in (a,b),!canary")
}

// addEvents adds those too that only events have.
func (o *filterOptions) addEvents(cmd *cobra.Command) {
	o.addPods(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&o.filter.Types, "type", nil, "only events of these types, such as ContainerDied")
	f.StringSliceVar(&o.filter.Sources, "source", nil, "only events first seen in these: stream, relist, inspect")
	// They fail for a flag that doesn't exist only.
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(words(selection.EventTypes), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("source", cobra.FixedCompletions(words(selection.Sources), cobra.ShellCompDirectiveNoFileComp))
}

// words returns the words of values that print as such.
func words[T any](values []T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = fmt.Sprint(v)
	}
	return list
}

// selection understands the flags as the agent would. Errors name the flag.
func (o *filterOptions) selection() (*selection.Selection, error) {
	s, err := selection.New(o.filter)
	var bad *selection.KeyError
	if errors.As(err, &bad) {
		flag := bad.Key
		if flag == "label selector" {
			flag = "selector"
		}
		return nil, usagef("--%s %.200q: %s", flag, bad.Value, bad.Reason)
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

// empty reports whether everything is chosen.
func (o *filterOptions) empty() bool {
	f := &o.filter
	return len(f.Namespaces)+len(f.Pods)+len(f.UIDs)+len(f.Containers)+len(f.Labels)+len(f.Types)+len(f.Sources) == 0
}
