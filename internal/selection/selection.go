// Package selection chooses events and pods by what a reader asked for.
package selection

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

const (
	// maxValues of one key, and maxLength of one value, bytes: ample for every
	// pod of a node, and little to keep for each of many readers.
	maxValues = 1024
	maxLength = 1024
	// maxSelector is how long a label selector may be, bytes.
	maxSelector = 4096
)

// ErrFilter is wrapped by KeyError.
var ErrFilter = errors.New("invalid filter")

// KeyError says which key of a Filter is wrong, and what is allowed. It wraps
// ErrFilter.
type KeyError struct{ Key, Value, Reason string }

// Error names the key, the value and what is allowed.
func (e *KeyError) Error() string {
	return fmt.Sprintf("%v: %s %.80q: %s", ErrFilter, e.Key, e.Value, e.Reason)
}

// Unwrap returns ErrFilter.
func (e *KeyError) Unwrap() error { return ErrFilter }

// Filter is what a reader asks for. Values of one key are alternatives; keys
// that have values must all agree. The zero Filter selects everything.
type Filter struct {
	Namespaces []string
	Pods       []string // names
	UIDs       []string // of pods, or their keys where they have none
	Containers []string // names; a sandbox's event has none
	Labels     string   // a selector, as kubectl takes it
	Types      []string // of events
	Sources    []string // of events
}

// Selection is a Filter that was understood. It is safe for concurrent use.
// The nil Selection selects everything.
type Selection struct {
	namespaces, pods, uids, containers, types, sources set
	labels                                             labels.Selector // nil for all
}

type set map[string]struct{}

// has reports whether a value is in the set; all are in the empty one.
func (s set) has(v string) bool {
	_, ok := s[v]
	return ok || len(s) == 0
}

// EventTypes are the names that Filter.Types may hold.
var EventTypes = []store.EventType{
	store.SandboxCreated, store.SandboxReady, store.SandboxNotReady, store.SandboxRemoved, store.SandboxChanged,
	store.ContainerCreated, store.ContainerStarted, store.ContainerDied, store.ContainerRemoved, store.ContainerChanged,
	store.SequenceSkipped,
}

// Sources are the names that Filter.Sources may hold.
var Sources = []timestamps.Provenance{timestamps.FromStream, timestamps.FromRelist, timestamps.FromInspect}

// New understands a Filter. The error is a KeyError.
func New(f Filter) (*Selection, error) {
	s := &Selection{}
	for _, k := range []struct {
		key     string
		values  []string
		to      *set
		allowed []string
	}{
		{"namespace", f.Namespaces, &s.namespaces, nil},
		{"pod", f.Pods, &s.pods, nil},
		{"uid", f.UIDs, &s.uids, nil},
		{"container", f.Containers, &s.containers, nil},
		{"type", f.Types, &s.types, Words(EventTypes)},
		{"source", f.Sources, &s.sources, Words(Sources)},
	} {
		var err error
		if *k.to, err = newSet(k.key, k.values, k.allowed); err != nil {
			return nil, err
		}
	}
	if f.Labels == "" {
		return s, nil
	}
	if strings.TrimSpace(f.Labels) == "" { // which would choose everything
		return nil, &KeyError{"selector", f.Labels, "must not be empty"}
	}
	if len(f.Labels) > maxSelector {
		return nil, &KeyError{"selector", f.Labels, fmt.Sprintf("must be at most %d bytes long", maxSelector)}
	}
	selector, err := labels.Parse(f.Labels)
	if err != nil {
		return nil, &KeyError{"selector", f.Labels, err.Error()}
	}
	s.labels = selector
	return s, nil
}

func newSet(key string, values, allowed []string) (set, error) {
	if len(values) > maxValues {
		return nil, &KeyError{key, fmt.Sprintf("%d values", len(values)), fmt.Sprintf("at most %d are allowed", maxValues)}
	}
	s := make(set, len(values))
	for _, v := range values {
		switch {
		case v == "":
			return nil, &KeyError{key, v, "must not be empty"}
		case len(v) > maxLength:
			return nil, &KeyError{key, v, fmt.Sprintf("must be at most %d bytes long", maxLength)}
		case allowed != nil && !slices.Contains(allowed, v):
			return nil, &KeyError{key, v, "must be one of " + strings.Join(allowed, ", ")}
		}
		s[v] = struct{}{}
	}
	return s, nil
}

// Words returns the words of values that print as such.
func Words[T any](values []T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = fmt.Sprint(v)
	}
	return list
}

// Event reports whether an event is selected. A SequenceSkipped is of no pod and has
// no source: it is where its type is asked for, whatever else is, and where nothing
// is asked for.
func (s *Selection) Event(ev *store.Event) bool {
	switch {
	case s == nil:
		return true
	case !s.types.has(string(ev.Type)):
		return false
	case ev.Type == store.SequenceSkipped:
		return len(s.sources) == 0 && !s.ofPods() || len(s.types) > 0
	}
	return s.sources.has(ev.Source.String()) && s.containers.has(ev.Container.Name) &&
		s.pod(ev.Pod.Namespace, ev.Pod.Name, ev.Pod.UID, ev.PodKey(), ev.Pod.Labels)
}

// ofPods reports whether anything is asked of the pod or container.
func (s *Selection) ofPods() bool {
	return len(s.namespaces)+len(s.pods)+len(s.uids)+len(s.containers) > 0 || s.labels != nil
}

// Pod reports whether a pod is selected: it is, if one of its containers is
// where containers are asked for. Types and sources don't count.
func (s *Selection) Pod(p *pleg.Pod) bool {
	if s == nil {
		return true
	}
	return s.pod(p.Namespace, p.Name, p.UID, p.Key, p.Labels) && (len(s.containers) == 0 ||
		slices.ContainsFunc(p.Containers, func(c pleg.Container) bool { return s.containers.has(c.Name) }))
}

func (s *Selection) pod(namespace, name, uid, key string, of map[string]string) bool {
	return s.namespaces.has(namespace) && s.pods.has(name) && (s.uids.has(uid) || s.uids.has(key)) &&
		(s.labels == nil || s.labels.Matches(labels.Set(of)))
}
