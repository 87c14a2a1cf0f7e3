package client

import "sync"

// news is what a cache has still to take: a snapshot, and then the pods that
// events have told of since.
type news struct {
	came chan struct{} // has one if there is something

	mu       sync.Mutex
	snapshot []*Pod
	has      bool // a snapshot
	dirty    []string
	is       map[string]bool // in dirty
}

func newNews() *news { return &news{came: make(chan struct{}, 1), is: map[string]bool{}} }

func (n *news) replace(pods []*Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.snapshot, n.has, n.dirty, n.is = pods, true, nil, map[string]bool{}
	n.leave()
}

// add notes pods by their keys.
func (n *news) add(keys ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, key := range keys {
		if !n.is[key] {
			n.is[key] = true
			n.dirty = append(n.dirty, key)
		}
	}
	n.leave()
}

func (n *news) leave() {
	select {
	case n.came <- struct{}{}:
	default:
	}
}

// fresh reports whether there is a snapshot to take.
func (n *news) fresh() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.has
}

func (n *news) take() (snapshot []*Pod, has bool, dirty []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	snapshot, has, dirty = n.snapshot, n.has, n.dirty
	n.snapshot, n.has, n.dirty, n.is = nil, false, nil, map[string]bool{}
	return snapshot, has, dirty
}
