package client

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
)

// choosesPods refuses a filter that can't choose pods.
func choosesPods(filter *Filter) error {
	if len(filter.GetTypes())+len(filter.GetSources()) > 0 {
		return fmt.Errorf("%w: types and sources choose events, and here are pods", ErrInvalid)
	}
	if slices.Contains(filter.GetContainers(), "") { // the agent sees the rest
		return fmt.Errorf("%w: invalid filter: container \"\": must not be empty", ErrInvalid)
	}
	return nil
}

// ofPods returns what chooses all events of the pods that a filter may choose. Events
// of sandboxes have no container, and yet are news of pods that are chosen by one.
func ofPods(filter *Filter) *Filter {
	f := proto.CloneOf(filter)
	if f != nil {
		f.Containers = nil
	}
	return f
}

// chosen reports whether a pod that the rest of the filter chooses is chosen by
// its containers too. They alone come and go.
func chosen(filter *Filter, pod *Pod) bool {
	names := filter.GetContainers()
	return len(names) == 0 || slices.ContainsFunc(pod.Containers, func(c *Container) bool { return slices.Contains(names, c.Name) })
}
