package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/plegd/plegd/internal/retry"
)

// CacheOptions say what a Cache holds and whom it tells. The functions may be
// nil. They are called by Run, one at a time, in the order of the changes of
// each pod; pods that they are given are shared and not to be changed.
type CacheOptions struct {
	// Filter chooses the pods. Types and sources must not be set. With containers a
	// pod is chosen as long as one of them is there. The cache then reads each pod
	// that the rest of the filter chooses when an event tells of it.
	Filter *Filter
	// Full has the pods with the runtime's own status messages.
	Full bool
	// Added is called for each pod that is new, those of the beginning too.
	Added func(pod *Pod)
	// Updated is called when anything but Pod.Position has changed.
	Updated func(old, pod *Pod)
	// Deleted is called with what was known last.
	Deleted func(pod *Pod)
	// Settled is called when the functions above have told all that came together, for
	// the first time right after Synced is closed. Its error ends Run.
	Settled func() error
}

// Cache holds the present pods. A pod is read when an event tells of it: each
// change that has an event is in the cache soon after it, and of changes
// that follow one another fast the last one counts. It goes on over
// restarts of the agent; where events are no longer kept it compares itself with
// a new snapshot, so the functions hear of what has changed meanwhile and of
// nothing else. Pods that are restored are read again until the agent has seen them.
// What else changes without an event, such as Container.Error, changes here with the
// next event of the pod. While the agent is away it holds what was known last.
//
// All methods are safe for concurrent use.
type Cache struct {
	c      *Client
	o      CacheOptions
	synced chan struct{}

	mu   sync.RWMutex
	pods map[string]*Pod
}

// NewCache returns a Cache that is empty until it runs.
func (c *Client) NewCache(o CacheOptions) *Cache {
	return &Cache{c: c, o: o, synced: make(chan struct{}), pods: map[string]*Pod{}}
}

// Synced is closed once the first snapshot is in the cache and Added was called
// for each pod of it.
func (k *Cache) Synced() <-chan struct{} { return k.synced }

// HasSynced reports whether Synced is closed.
func (k *Cache) HasSynced() bool {
	select {
	case <-k.synced:
		return true
	default:
		return false
	}
}

// Get returns a pod by its key. It is shared: don't change it.
func (k *Cache) Get(key string) (*Pod, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	pod, ok := k.pods[key]
	return pod, ok
}

// List returns all pods by key. They are shared: don't change them.
func (k *Cache) List() []*Pod {
	k.mu.RLock()
	defer k.mu.RUnlock()
	pods := make([]*Pod, 0, len(k.pods))
	for _, key := range slices.Sorted(maps.Keys(k.pods)) {
		pods = append(pods, k.pods[key])
	}
	return pods
}

// Run keeps the cache until ctx ends, and returns ctx's error, that of Settled, or
// one that trying again would not change. It runs once.
func (k *Cache) Run(ctx context.Context) error {
	if err := choosesPods(k.o.Filter); err != nil {
		return err
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news := newNews()
	watched := make(chan error, 1)
	watching.Go(func() { watched <- k.watch(ctx, news) })
	delays, looks := retry.Delays(retryFirst, retryMost), retry.Delays(retryFirst, retryMost)
	var look <-chan time.Time // at what is restored
	for {
		select {
		case err := <-watched:
			return err
		case <-look:
			look = nil
			news.add(k.restored()...)
			continue
		case <-news.came:
		}
		pods, fresh, dirty := news.take()
		if fresh {
			k.replace(pods)
			if !k.HasSynced() {
				close(k.synced)
			}
		}
		again, err := k.read(ctx, dirty, news)
		if !again {
			delays.Reset()
		}
		if err == nil && k.o.Settled != nil && k.HasSynced() {
			err = k.o.Settled()
		}
		if err != nil {
			return err
		}
		if again {
			wait(ctx, delays.NextBackOff())
		}
		switch n := len(k.restored()); {
		case n == 0:
			look = nil
			looks.Reset()
		case look == nil:
			look = time.After(looks.NextBackOff())
		}
	}
}

// restored returns the keys of the pods that the agent had not seen in its run when
// they were read. No event tells that it has.
func (k *Cache) restored() (keys []string) {
	for _, pod := range k.List() {
		if pod.Restored {
			keys = append(keys, pod.Key)
		}
	}
	return keys
}

// read reads the pods that events have told of. It reports whether the agent wasn't
// there for some of them, which are news again then.
func (k *Cache) read(ctx context.Context, keys []string, news *news) (again bool, err error) {
	for i, key := range keys {
		pod, err := k.c.Pod(ctx, key, PodOptions{Full: k.o.Full})
		switch {
		case news.fresh(): // a snapshot has come, and says more
			return false, nil
		case err == nil || errors.Is(err, ErrNoPod):
			k.put(key, pod)
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, ErrUnavailable): // it restarts
			news.add(keys[i:]...)
			return true, nil
		default:
			return false, err
		}
	}
	return false, nil
}

// watch takes note of all that comes.
func (k *Cache) watch(ctx context.Context, n *news) error {
	for u, err := range k.c.Watch(ctx, WatchOptions{From: From{Snapshot: true}, Filter: ofPods(k.o.Filter), Full: k.o.Full, StartOver: true}) {
		switch {
		case err != nil:
			return err
		case u.Pods != nil:
			n.replace(u.Pods)
		case u.Event.GetPodKey() != "":
			n.add(u.Event.PodKey)
		}
	}
	return ctx.Err()
}

// replace takes a snapshot.
func (k *Cache) replace(pods []*Pod) {
	there := map[string]bool{}
	for _, pod := range pods {
		there[pod.Key] = true
	}
	for _, old := range k.List() {
		if !there[old.Key] {
			k.put(old.Key, nil)
		}
	}
	for _, pod := range pods {
		k.put(pod.Key, pod)
	}
}

// put takes what is known of a pod now, nil if it is gone.
func (k *Cache) put(key string, pod *Pod) {
	if pod != nil && !chosen(k.o.Filter, pod) {
		pod = nil
	}
	old, _ := k.Get(key)
	k.mu.Lock()
	if pod == nil {
		delete(k.pods, key)
	} else {
		k.pods[key] = pod
	}
	k.mu.Unlock()
	switch {
	case old == nil && pod == nil:
	case old == nil:
		tell(k.o.Added, pod)
		// Its UID was learnt late: it was there under another key.
		for _, s := range pod.Sandboxes {
			if other := keyOfSandbox + s.Id; other != key {
				k.put(other, nil)
			}
		}
	case pod == nil:
		tell(k.o.Deleted, old)
	case k.o.Updated != nil && !same(old, pod):
		k.o.Updated(old, pod)
	}
}

// keyOfSandbox begins the key of a pod without a UID.
const keyOfSandbox = "sandbox:"

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

func tell(f func(*Pod), pod *Pod) {
	if f != nil {
		f(pod)
	}
}

// same compares pods but for their positions, which move with each event of any
// pod.
func same(a, b *Pod) bool {
	c := proto.CloneOf(b)
	c.Position = a.Position
	return proto.Equal(a, c)
}

// wait waits, but no longer than ctx.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

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
