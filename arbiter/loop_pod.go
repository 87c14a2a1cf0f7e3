package arbiter

import (
	"errors"
	"fmt"
	"slices"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// ErrNoPod: no such pod, as of a list or a look that was made for the answer,
// or as of the last commit.
var ErrNoPod = errors.New("no such pod")

// Pod is what is known of one pod: committed or, while nothing can be, told from
// memory, hence never ahead of the events that readers can see. Records are shared: don't change them.
type Pod struct {
	Key        string              // see store.Record.PodKey
	Sandboxes  []Entity            // the current one first
	Containers []Entity            // by name, then attempt, then id
	Position   timestamps.Position // of the newest event that is contained
	Fresh      timestamps.Tick     // it is true as of a call sent at this tick, 0 not asked in this run
}

// Entity is one sandbox or container: the last good status, beside it the
// error of the last inspection if that failed.
type Entity struct {
	*store.Record
	Restored bool         // from the state file, not yet seen in this run
	Err      string       // why the last inspection failed, "" if it didn't
	Asked    store.Reason // why it waits for an inspection or a look, 0 if it doesn't
}

// Ref returns the pod's name and namespace as its entities have it.
func (p *Pod) Ref() store.PodRef {
	for _, list := range [][]Entity{p.Sandboxes, p.Containers} {
		for _, e := range list {
			if e.Identity.Pod != (store.PodRef{}) {
				return e.Identity.Pod
			}
		}
	}
	return store.PodRef{}
}

// IPs returns the addresses of the current sandbox, kept after termination.
func (p *Pod) IPs() []string {
	if len(p.Sandboxes) == 0 {
		return nil
	}
	return p.Sandboxes[0].IPs
}

// Restored reports whether any part has not been seen in this run.
func (p *Pod) Restored() bool {
	restored := func(e Entity) bool { return e.Restored }
	return slices.ContainsFunc(p.Sandboxes, restored) || slices.ContainsFunc(p.Containers, restored)
}

// Pod returns what is known of a pod by its key, its UID or, where it has
// none, "sandbox:" and its sandbox's id. The error is ErrNoPod.
func (l *Loop) Pod(key string) (Pod, error) {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	p, ok := l.view.pod(key)
	if !ok {
		return Pod{}, fmt.Errorf("pod %.80q: %w", key, ErrNoPod)
	}
	return p, nil
}

// Pods returns all pods by key, and the position of the newest event that
// they contain: one consistent snapshot.
func (l *Loop) Pods() ([]Pod, timestamps.Position) {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	pods := make([]Pod, 0, len(l.view.pods))
	for _, key := range sortedKeys(l.view.pods) {
		if p, ok := l.view.pod(key); ok {
			pods = append(pods, p)
		}
	}
	return pods, l.view.position
}

// Asks returns the reinspection queue by id.
func (l *Loop) Asks() []store.Ask {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	asks := make([]store.Ask, 0, len(l.view.asks))
	for _, id := range sortedKeys(l.view.asks) {
		asks = append(asks, *l.view.asks[id])
	}
	return asks
}
