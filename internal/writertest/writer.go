// Package writertest measures what the readers of an API cost the writer: it has a
// loop that writes events as fast as they are taken, and readers in a process of
// their own, as on a node.
package writertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// EntriesOf is how many entries of the journal each event makes that is written.
const EntriesOf = 2

// Writer is a loop over a file that is fed with events of new sandboxes. It serves
// as the source of each API: what it doesn't know is empty.
type Writer struct {
	*arbiter.Loop
	made int
}

// Health says that all is well.
func (w *Writer) Health() pleg.Health { return pleg.Health{Listed: true, Live: true, Ready: true} }

// Status is empty.
func (w *Writer) Status() pleg.Status { return pleg.Status{} }

// Pods are none: what is measured are events.
func (w *Writer) Pods() ([]pleg.Pod, pleg.Position) { return nil, w.Position() }

// Pod knows none.
func (w *Writer) Pod(string) (pleg.Pod, error) { return pleg.Pod{}, pleg.ErrNoPod }

// PodNewer knows none.
func (w *Writer) PodNewer(context.Context, string) (pleg.Pod, error) {
	return pleg.Pod{}, pleg.ErrNoPod
}

// EntitiesOf returns what a pod consists of, as [pleg.Generator.EntitiesOf] does.
func (w *Writer) EntitiesOf(key string) (sandboxes, containers []pleg.Entity) {
	pod, err := w.Loop.Pod(key)
	if err != nil {
		return nil, nil
	}
	return pod.Sandboxes, pod.Containers
}

// Relist does nothing.
func (w *Writer) Relist(context.Context) error { return nil }

// Start starts a loop that has listed nothing, until the end of the benchmark.
// What is to end before it is registered with Cleanup later.
func Start(b testing.TB) *Writer {
	b.Helper()
	s, _, err := store.OpenBolt(store.BoltConfig{Dir: b.TempDir(), Runtime: storetest.Runtime})
	if err != nil {
		b.Fatal(err)
	}
	loop, err := arbiter.NewLoop(arbiter.Config{Store: s, Clock: sysclock.New(), BootID: "boot", Runtime: storetest.Runtime})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	Run(b, func(ctx context.Context) error { return loop.Run(ctx, arbiter.Hooks{}) })
	call := func() arbiter.Call {
		return arbiter.Call{Sent: loop.Calls().Begin(timestamps.FromRelist), Answered: loop.Calls().Answered(timestamps.FromUnknown)}
	}
	list := &arbiter.ListSeen{SandboxCall: call(), ContainerCall: call()}
	loop.Submit(list)
	if err := loop.WaitFresh(b.Context(), list.SandboxCall.Sent.Tick-1); err != nil {
		b.Fatal(err)
	}
	return &Writer{Loop: loop}
}

// Write has n events written, as fast as they are taken, and returns how long that
// took. It is for one goroutine.
func (w *Writer) Write(n int) time.Duration {
	begin := time.Now()
	for range n {
		id := fmt.Sprintf("s%08d", w.made)
		w.made++
		at := w.Calls().Answered(timestamps.FromUnknown)
		it := arbiter.Item{
			Kind: store.KindSandbox, ID: id, Sandbox: id, Full: true, CreatedAt: 1, IPs: []string{"10.0.0.1"}, Rest: "status",
			Identity: store.Identity{
				Pod:    store.PodRef{UID: "uid-" + id, Namespace: "default", Name: "pod-" + id},
				Labels: map[string]string{"app": "web", "io.kubernetes.pod.name": "pod-" + id, "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": "uid-" + id},
			},
		}
		for !w.SubmitEvent(&arbiter.EventSeen{At: at, Type: arbiter.EventStarted, ID: id, CreatedAt: at.Wall + 1, Sandbox: &it}) {
			time.Sleep(100 * time.Microsecond)
		}
	}
	for w.Position().Seq < uint64(EntriesOf*w.made) {
		time.Sleep(100 * time.Microsecond)
	}
	return time.Since(begin)
}

// Run runs a loop or a server until the end of the benchmark.
func Run(tb testing.TB, run func(context.Context) error) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
	})
}
