package rpc_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/rpc"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// writer is a loop that is fed with events of new sandboxes, each two entries of
// the journal, and served. It is an rpc.Source.
type writer struct {
	*arbiter.Loop
	made int
}

func (w *writer) Health() pleg.Health { return pleg.Health{Listed: true, Live: true, Ready: true} }

func (w *writer) Status() pleg.Status { return pleg.Status{} }

func (w *writer) Pods() ([]pleg.Pod, pleg.Position) { return nil, w.Position() }

func (w *writer) Pod(string) (pleg.Pod, error) { return pleg.Pod{}, pleg.ErrNoPod }

func (w *writer) PodNewer(context.Context, string) (pleg.Pod, error) {
	return pleg.Pod{}, pleg.ErrNoPod
}

func (w *writer) Relist(context.Context) error { return nil }

// startWriter starts a loop over a file, and serves it.
func startWriter(b *testing.B) (*writer, string) {
	b.Helper()
	s, _, err := store.OpenBolt(store.BoltConfig{Dir: b.TempDir(), Runtime: storetest.Runtime})
	if err != nil {
		b.Fatal(err)
	}
	loop, err := arbiter.NewLoop(arbiter.Config{Store: s, Clock: sysclock.New(), BootID: "boot", Runtime: storetest.Runtime})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx, arbiter.Hooks{}) }()
	w := &writer{Loop: loop}
	stamp := func() timestamps.Stamp { return loop.Calls().Answered(timestamps.FromUnknown) }
	call := func() arbiter.Call {
		return arbiter.Call{Sent: loop.Calls().Begin(timestamps.FromRelist), Answered: stamp()}
	}
	list := &arbiter.ListSeen{SandboxCall: call(), ContainerCall: call()}
	loop.Submit(list)
	if err := loop.WaitFresh(ctx, list.SandboxCall.Sent.Tick-1); err != nil {
		b.Fatal(err)
	}
	socket, stop := serve(b, rpc.Config{Health: w.Health, Source: func() (rpc.Source, error) { return w, nil }})
	b.Cleanup(func() {
		stop()
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		_ = s.Close()
	})
	return w, socket
}

// write has n events written, as fast as they are taken, and returns how long that
// took.
func (w *writer) write(n int) time.Duration {
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
	for w.Position().Seq < uint64(2*w.made) {
		time.Sleep(100 * time.Microsecond)
	}
	return time.Since(begin)
}

// subscribe opens so many watches, each on a connection of its own, and reads them
// until stop is called. It counts what comes.
func subscribe(b *testing.B, socket string, n int, filter *plegdv1.Filter, came *atomic.Int64) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range n {
		stream, err := api(b, socket).Watch(ctx, &plegdv1.WatchRequest{Filter: filter})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			b.Fatal(err)
		}
		all.Go(func() {
			for {
				m, err := stream.Recv()
				if err != nil {
					return
				}
				came.Add(int64(len(m.GetEvents().GetEvents())))
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

var _ = slices.Sorted[int]

func BenchmarkExplore(b *testing.B) {
	w, socket := startWriter(b)
	for range 3 {
		d := w.write(5000)
		b.Logf("alone: %.0f/s", 5000/d.Seconds())
		var came atomic.Int64
		stop := subscribe(b, socket, 100, nil, &came)
		begin := time.Now()
		d = w.write(5000)
		b.Logf("with 100: %.0f/s", 5000/d.Seconds())
		for came.Load() < 100*10000 {
			time.Sleep(time.Millisecond)
		}
		b.Logf("deliveries %d/s", int(float64(came.Load())/time.Since(begin).Seconds()))
		stop()
		stop = subscribe(b, socket, 100, &plegdv1.Filter{Pods: []string{"none"}}, &came)
		d = w.write(5000)
		b.Logf("with 100 filtered: %.0f/s", 5000/d.Seconds())
		stop()
	}
}
