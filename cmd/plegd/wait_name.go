package main

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/plegd/plegd/client"
)

// likeKey fits what is a pod's key rather than a name: a UID, without dashes for static pods, or
// that of a pod without one.
var likeKey = regexp.MustCompile(`^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|sandbox:.*)$`)

// mostMeant is how many pods a message names.
const mostMeant = 3

// unnamed looks at a target of which nothing is there, at first. Without its namespace a pod's
// name is taken for a key, which no pod will ever have: that is said. Where it is the name of
// a pod that is there it can't count as removed.
func (o *waitOptions) unnamed(ctx context.Context, agent *agentClient, t *waitTarget) error {
	if t.pod.key == "" || likeKey.MatchString(t.pod.key) {
		return nil
	}
	named := "a pod is NAMESPACE/NAME"
	if t.container != "" {
		named = "a container is NAMESPACE/POD/NAME"
		if list, err := agent.pods(ctx, t.pod.filter()); err != nil || len(list.Pods) > 0 {
			return err // its pod is there, under this key
		}
	}
	meant, err := t.meant(ctx, agent)
	switch {
	case err != nil:
		return err
	case len(meant) == 0:
		o.note("%s %q: no pod has the key %q; by its name %s", t.kind(), t.text, t.pod.key, named)
	case o.state == stateRemoved:
		return usagef("%s %.200q: no pod has the key %q, but there is the pod %s; by its name %s", t.kind(), t.text, t.pod.key, strings.Join(meant, ", "), named)
	default:
		o.note("%s %q: no pod has the key %q, but there is the pod %s; by its name %s", t.kind(), t.text, t.pod.key, strings.Join(meant, ", "), named)
	}
	return nil
}

// meant returns the names of the pods that the target may be about: those with what was given as
// the key for their name or, where the name of a container was left out, as their namespace.
func (t *waitTarget) meant(ctx context.Context, agent *agentClient) ([]string, error) {
	filters := []*client.Filter{{Pods: []string{t.pod.key}}}
	if t.container != "" {
		filters = append(filters, podRef{namespace: t.pod.key, name: t.container}.filter())
	}
	var meant []string
	for _, filter := range filters {
		list, err := agent.pods(ctx, filter)
		if err != nil {
			return nil, err
		}
		for i := range list.Pods {
			meant = append(meant, podName(&list.Pods[i]))
		}
	}
	slices.Sort(meant)
	meant = slices.Compact(meant) // two have one name while one takes the place of the other
	if len(meant) > mostMeant {
		meant = append(meant[:mostMeant], "…")
	}
	return meant, nil
}
