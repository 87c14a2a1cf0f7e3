package client

import (
	"context"
	"errors"
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
	looked := ""              // at which of it last
	for {
		select {
		case err := <-watched:
			return err
		case <-look:
			look = nil
			if looked = after(k.restored(), looked); looked != "" {
				news.add(looked)
			}
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
			if err := retry.Sleep(ctx, delays.NextBackOff()); err != nil {
				return err
			}
		}
		switch restored := k.restored(); {
		case len(restored) == 0:
			look, looked = nil, ""
			looks.Reset()
		case looked != "" && !slices.Contains(restored, looked): // the runtime was listed: what of the others?
			looked = ""
			looks.Reset()
			news.add(restored...)
		case look == nil:
			look = time.After(looks.NextBackOff())
		}
	}
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
