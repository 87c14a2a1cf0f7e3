package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

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

// counting is a client's codec that counts events and doesn't make anything of
// them: what a client does with an event is not the agent's to pay.
type counting struct{}

func (counting) Name() string { return "proto" }

func (counting) Marshal(v any) (mem.BufferSlice, error) {
	b, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (counting) Unmarshal(data mem.BufferSlice, v any) error {
	const events, event = 2, 1 // fields of WatchResponse and of Events
	n, ok := v.(*int64)
	if !ok {
		return proto.Unmarshal(data.Materialize(), v.(proto.Message))
	}
	b := data.Materialize()
	for field, rest := next(b); field != 0; field, rest = next(rest) {
		if field != events {
			continue
		}
		_, _, k := protowire.ConsumeTag(b)
		body, _ := protowire.ConsumeBytes(b[k:])
		for f, r := next(body); f != 0; f, r = next(r) {
			if f == event {
				*n++
			}
		}
	}
	return nil
}

// next returns the number of the first field and what comes after it.
func next(b []byte) (protowire.Number, []byte) {
	field, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return 0, nil
	}
	return field, b[n+protowire.ConsumeFieldValue(field, kind, b[n:]):]
}

// subscribe opens so many watches, each on a connection of its own, and reads them
// until stop is called. It counts what comes.
func subscribe(b *testing.B, socket string, n int, came *atomic.Int64) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range n {
		conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(counting{})))
		if err != nil {
			b.Fatal(err)
		}
		stream, err := conn.NewStream(ctx, &plegdv1.PodLifecycle_ServiceDesc.Streams[0], plegdv1.PodLifecycle_Watch_FullMethodName)
		if err == nil {
			err = errors.Join(stream.SendMsg(&plegdv1.WatchRequest{}), stream.CloseSend(), stream.RecvMsg(new(int64)))
		}
		if err != nil {
			b.Fatal(err)
		}
		all.Go(func() {
			defer conn.Close()
			for {
				var events int64
				if stream.RecvMsg(&events) != nil {
					return
				}
				came.Add(events)
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// arrive waits until so many events have come.
func arrive(came *atomic.Int64, want int) {
	for came.Load() < int64(want) {
		time.Sleep(time.Millisecond)
	}
}

const (
	benchWatches = 100
	benchEvents  = 2000 // each two entries of the journal
)

// BenchmarkWriter measures how many events a second go through queue, core, commit
// and publication while nobody watches, and while 100 watch: in turns, so that what
// else the machine does concerns both. ratio is what is left with them.
func BenchmarkWriter(b *testing.B) {
	w, socket := startWriter(b)
	w.write(benchEvents)
	var alone, watched time.Duration
	var came atomic.Int64
	for b.Loop() {
		alone += w.write(benchEvents)
		b.StopTimer()
		came.Store(0)
		stop := subscribe(b, socket, benchWatches, &came)
		b.StartTimer()
		watched += w.write(benchEvents)
		arrive(&came, 2*benchEvents*benchWatches) // all of them get everything
		b.StopTimer()
		stop()
		b.StartTimer()
	}
	n := float64(b.N) * benchEvents
	b.ReportMetric(n/alone.Seconds(), "alone/s")
	b.ReportMetric(n/watched.Seconds(), "watched/s")
	b.ReportMetric(alone.Seconds()/watched.Seconds(), "ratio")
}

// BenchmarkFanOut measures how many events a second come to 100 watches that have
// the same history to read.
func BenchmarkFanOut(b *testing.B) {
	w, socket := startWriter(b)
	var took time.Duration
	for b.Loop() {
		var came atomic.Int64
		stop := subscribe(b, socket, benchWatches, &came)
		begin := time.Now()
		w.write(benchEvents)
		arrive(&came, 2*benchEvents*benchWatches)
		took += time.Since(begin)
		b.StopTimer()
		stop()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.N)*2*benchEvents*benchWatches/took.Seconds(), "deliveries/s")
}

// BenchmarkStoppedWatch measures what ten watches that are not read cost ten that
// are: ratio is how fast these get everything, compared with being alone.
func BenchmarkStoppedWatch(b *testing.B) {
	w, socket := startWriter(b)
	const others = 10
	var alone, beside time.Duration
	for b.Loop() {
		for _, stopped := range []bool{false, true} {
			b.StopTimer()
			ctx, cancel := context.WithCancel(context.Background())
			c := api(b, socket)
			for range others {
				if !stopped {
					break
				}
				if _, err := c.Watch(ctx, &plegdv1.WatchRequest{}); err != nil {
					b.Fatal(err)
				}
			}
			var came atomic.Int64
			stop := subscribe(b, socket, others, &came)
			b.StartTimer()
			begin := time.Now()
			w.write(benchEvents)
			arrive(&came, 2*benchEvents*others)
			if stopped {
				beside += time.Since(begin)
			} else {
				alone += time.Since(begin)
			}
			b.StopTimer()
			stop()
			cancel()
			b.StartTimer()
		}
	}
	b.ReportMetric(alone.Seconds()/beside.Seconds(), "ratio")
}
