package watch

import (
	"errors"
	"fmt"
	"slices"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/selection"
)

// Pods returns the pods that are selected, and the position that continues
// them. What was never listed is unknown, and unknown is never empty: without a
// full list in this run, or selected pods of an earlier one, the error wraps ErrUnknown.
func Pods(src Source, sel *selection.Selection) ([]pleg.Pod, pleg.Position, error) {
	why := unlisted(src.Health()) // asked first, so that a list that is told of is also in the pods
	all, at := src.Pods()
	pods := []pleg.Pod{}
	for i := range all {
		if sel.Pod(&all[i]) {
			pods = append(pods, all[i])
		}
	}
	if why != nil && !slices.ContainsFunc(pods, func(p pleg.Pod) bool { return p.Restored }) {
		return nil, pleg.Position{}, why
	}
	return pods, at, nil
}

// Pod returns one pod by its key. Before the first full list of this run nobody knows
// that there is none, not even from restored pods, since it may have come meanwhile:
// the error wraps ErrUnknown then, later pleg.ErrNoPod.
func Pod(src interface {
	Health() pleg.Health
	Pod(key string) (pleg.Pod, error)
}, key string) (pleg.Pod, error) {
	why := unlisted(src.Health()) // asked first, as for Pods
	pod, err := src.Pod(key)
	if errors.Is(err, pleg.ErrNoPod) && why != nil {
		err = why
	}
	return pod, err
}

// unlisted says why there was no full list in this run yet, nil if there was.
// The error wraps ErrUnknown.
func unlisted(h pleg.Health) error {
	if h.Listed {
		return nil
	}
	why := "the runtime was not listed yet"
	for _, c := range h.Checks {
		if c.Name == pleg.CheckRelist && c.Reason != "" {
			why = c.Reason
		}
	}
	return fmt.Errorf("%w: %s", ErrUnknown, why)
}
