package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/plegd/plegd/client"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// mirror holds what the functions of a cache have told, and checks that they tell
// one history of each pod.
type mirror struct {
	t       *testing.T
	mu      sync.Mutex
	pods    map[string]*client.Pod
	added   int
	updated int
	deleted int
}

func newMirror(t *testing.T) *mirror { return &mirror{t: t, pods: map[string]*client.Pod{}} }

func (m *mirror) options() client.CacheOptions {
	return client.CacheOptions{
		Added: func(pod *client.Pod) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.pods[pod.Key] != nil {
				m.t.Errorf("%s is added again", pod.Name)
			}
			m.pods[pod.Key] = pod
			m.added++
		},
		Updated: func(old, pod *client.Pod) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.pods[pod.Key] == nil || !same(m.pods[pod.Key], old) {
				m.t.Errorf("%s was\n%v\nand is updated from\n%v", pod.Name, m.pods[pod.Key], old)
			}
			if same(old, pod) {
				m.t.Errorf("%s is updated to what it was", pod.Name)
			}
			m.pods[pod.Key] = pod
			m.updated++
		},
		Deleted: func(pod *client.Pod) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.pods[pod.Key] == nil {
				m.t.Errorf("%s is deleted, which isn't there", pod.Name)
			}
			delete(m.pods, pod.Key)
			m.deleted++
		},
	}
}

// diff compares with pods, but for their positions.
func (m *mirror) diff(pods []*client.Pod) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return diff(m.pods, byKey(pods))
}

func diff(a, b map[string]*client.Pod) string {
	return cmp.Diff(a, b, protocmp.Transform(), protocmp.IgnoreFields(&client.Pod{}, "position"))
}

func byKey(pods []*client.Pod) map[string]*client.Pod {
	m := map[string]*client.Pod{}
	for _, pod := range pods {
		m[pod.Key] = pod
	}
	return m
}

func same(a, b *client.Pod) bool {
	c := proto.CloneOf(b)
	c.Position = a.Position
	return proto.Equal(a, c)
}

// keep runs a cache until the end of the test.
func keep(t *testing.T, k *client.Cache) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the cache has ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// A cache comes to hold what the agent holds, and what its functions tell adds up
// to that: over churn, restarts, kills, and a state that is lost.
func TestCache(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Config.Retention = store.Retention{Entries: 100}
	n.Pod("still")
	a := n.Start()
	c := dial(t, n.Socket, client.Options{Wait: true})
	m := newMirror(t)
	k := c.NewCache(m.options())
	if k.HasSynced() {
		t.Error("synced before it runs")
	}
	stop := keep(t, k)
	<-k.Synced()
	if _, ok := k.Get("uid-still"); !ok || !k.HasSynced() {
		t.Error("synced without a pod that is there")
	}
	load := churn(t, n, 6)
	for round := range 5 {
		load.steps(30)
		switch round {
		case 0:
			a.Stop()
		case 1:
			a.Kill()
		case 2:
			a.Stop()
			n.Config.StateDir = t.TempDir() // lost: another epoch
		case 3:
			a.Stop()
			load.steps(100) // more than the journal keeps
		default:
			a.Settle()
			continue
		}
		load.steps(10)
		a = n.Start()
		a.Settle()
	}
	// What is in no event, such as that a container can't be inspected, the cache
	// hears of with the next event of the pod.
	for i := range 3 {
		sandbox, container := n.Pod(fmt.Sprint("more", i))
		if i == 1 {
			n.Remove(sandbox, container)
		}
	}
	a.Settle()
	rpctest.WaitFor(t, "the cache to hold what the agent does", func() bool {
		pods, _, err := c.Pods(within(t), nil, client.PodOptions{})
		return err == nil && diff(told(k.List()), told(pods)) == ""
	})
	stop()
	if d := m.diff(k.List()); d != "" {
		t.Errorf("what was told is not what is held: %s", d)
	}
	if m.added == 0 || m.updated == 0 || m.deleted == 0 {
		t.Errorf("%d added, %d updated, %d deleted", m.added, m.updated, m.deleted)
	}
	if _, ok := k.Get("uid-still"); !ok {
		t.Error("a cache that has ended is empty")
	}
}

// told is what events tell of pods.
func told(pods []*client.Pod) map[string]*client.Pod {
	m := map[string]*client.Pod{}
	for _, pod := range pods {
		p := &client.Pod{Key: pod.Key, Name: pod.Name}
		for _, s := range pod.Sandboxes {
			p.Sandboxes = append(p.Sandboxes, &client.Sandbox{Id: s.Id, State: s.State, Ips: s.Ips})
		}
		for _, c := range pod.Containers {
			p.Containers = append(p.Containers, &client.Container{Id: c.Id, State: c.State, ExitCode: c.ExitCode})
		}
		m[pod.Key] = p
	}
	return m
}

// A cache with a filter holds what the filter chooses, and lets go of a pod whose
// container by which it was chosen is gone.
func TestCacheWithFilter(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	web, _ := n.Pod("web")
	side := n.Container(web, "side")
	n.Pod("db")
	a := n.Start()
	c := dial(t, n.Socket, client.Options{})
	m := newMirror(t)
	o := m.options()
	o.Filter = &client.Filter{Containers: []string{"side"}}
	k := c.NewCache(o)
	keep(t, k)
	<-k.Synced()
	if pods := k.List(); len(pods) != 1 || pods[0].Name != "web" {
		t.Errorf("pods %v", pods)
	}
	n.Must(n.Runtime.StopContainer(side, false))
	n.Must(n.Runtime.RemoveContainer(side))
	rpctest.WaitFor(t, "the pod to go", func() bool { return len(k.List()) == 0 && m.diff(nil) == "" })
	other, _ := n.Pod("other")
	last := n.Container(other, "side")
	rpctest.WaitFor(t, "another one to come", func() bool { return len(k.List()) == 1 })
	// What happens to its sandbox is of no container, once that has exited.
	n.Must(n.Runtime.StopContainer(last, false))
	a.Settle()
	rpctest.WaitFor(t, "its container to have exited", func() bool {
		pods := k.List()
		return len(pods) == 1 && slices.ContainsFunc(pods[0].Containers, func(c *client.Container) bool { return c.Id == last && c.ExitCode != nil })
	})
	n.Must(n.Runtime.StopPodSandbox(other))
	rpctest.WaitFor(t, "its sandbox to be notready", func() bool {
		pods := k.List()
		return len(pods) == 1 && pods[0].Sandboxes[0].State == "notready"
	})
	rpctest.WaitFor(t, "the functions to have told it", func() bool { return m.diff(k.List()) == "" })
	if _, ok := k.Get("uid-db"); ok {
		t.Error("a pod without the container is there")
	}

	err := c.NewCache(client.CacheOptions{Filter: &client.Filter{Types: []string{"ContainerDied"}}}).Run(within(t))
	if !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a cache of events: %v", err)
	}
	err = c.NewCache(client.CacheOptions{Filter: &client.Filter{Containers: []string{"side", ""}}}).Run(within(t))
	if !errors.Is(err, client.ErrInvalid) {
		t.Errorf("a container without a name: %v", err)
	}
}

// That a restored pod was seen again is in no event, and comes to the cache all the
// same.
func TestCacheOfWhatIsRestored(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Pod("web")
	n.Pod("db")
	a := n.Start()
	a.Settle()
	a.Stop()
	n.ListsAre(simruntime.Rule{Code: codes.Internal, Message: "not now"})
	n.StartUnready()
	c := dial(t, n.Socket, client.Options{Wait: true})
	m := newMirror(t)
	k := c.NewCache(m.options())
	keep(t, k)
	<-k.Synced()
	restored := func(pod *client.Pod) bool { return pod.Restored }
	if pods := k.List(); len(pods) != 2 || !pods[0].Restored || !pods[1].Restored {
		t.Fatalf("not restored: %v", pods)
	}
	n.Runtime.ClearRules()
	rpctest.WaitFor(t, "them to be seen", func() bool { return !slices.ContainsFunc(k.List(), restored) })
	rpctest.WaitFor(t, "the functions to have told it", func() bool { return m.diff(k.List()) == "" })
}

// Who writes down what is told does so when all of it has come, and may end the cache.
func TestCacheSettles(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Start()
	c := dial(t, n.Socket, client.Options{})
	enough := errors.New("enough")
	empty := client.CacheOptions{Settled: func() error { return enough }}
	if err := c.NewCache(empty).Run(within(t)); !errors.Is(err, enough) {
		t.Errorf("without pods: %v", err)
	}
	n.Pod("web")
	n.Pod("db")
	rpctest.WaitFor(t, "both pods", func() bool {
		pods, _, err := c.Pods(within(t), nil, client.PodOptions{})
		return err == nil && len(pods) == 2
	})
	var told notes
	var k *client.Cache
	k = c.NewCache(client.CacheOptions{
		Added:   func(pod *client.Pod) { told.add(pod.Name) },
		Deleted: func(pod *client.Pod) { told.add("-" + pod.Name) },
		Settled: func() error {
			told.add(".")
			switch {
			case !k.HasSynced():
				t.Error("settled before it has synced")
			case len(told.all()) == 3:
				sandbox, container := n.Pod("late")
				n.Remove(sandbox, container)
				n.Pod("last")
			case slices.Contains(told.all(), "last"):
				return enough
			}
			return nil
		},
	})
	if err := k.Run(within(t)); !errors.Is(err, enough) {
		t.Error(err)
	}
	if got := told.line(); !strings.HasPrefix(got, "db web .") {
		t.Errorf("told: %s", got)
	}
}

// A UID is free text, and may be missing. One that looks like a key of another kind
// has a key of its own, and its pod is followed as any other.
func TestCacheOfOddUIDs(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	uids := []string{"uid:x", "sandbox:x", "uid:sandbox:x", "x", ""}
	n.Start()
	c := dial(t, n.Socket, client.Options{})
	m := newMirror(t)
	k := c.NewCache(m.options())
	keep(t, k)
	<-k.Synced()
	sandboxes := map[string]string{} // by UID
	for _, uid := range uids {
		sandbox, err := n.Runtime.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: "web", UID: uid})
		n.Must(err)
		sandboxes[uid] = sandbox
	}
	rpctest.WaitFor(t, "all of them", func() bool { return len(k.List()) == len(uids) })
	for _, uid := range uids {
		n.Must(n.Runtime.StopPodSandbox(sandboxes[uid]))
		key := store.PodKeyOfUID(uid)
		if uid == "" {
			key = store.PodKeyOfSandbox(sandboxes[uid])
		}
		rpctest.WaitFor(t, "the sandbox of "+uid+" to be notready", func() bool {
			pod, ok := k.Get(key)
			return ok && pod.Uid == uid && pod.Sandboxes[0].State == "notready"
		})
		n.Must(n.Runtime.RemovePodSandbox(sandboxes[uid]))
		rpctest.WaitFor(t, uid+" to go", func() bool { _, ok := k.Get(key); return !ok })
	}
	rpctest.WaitFor(t, "the functions to have told it", func() bool { return m.diff(nil) == "" })
}
