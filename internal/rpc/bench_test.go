package rpc_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
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

// subscribe opens so many watches, each on a connection of its own, in a process
// of their own as on a node, and reads them until stop is called. It counts what
// comes.
func subscribe(b *testing.B, socket string, n int, came *atomic.Int64) (stop func()) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%s", readersEnv, n, socket))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "0" { // all have begun
		b.Fatalf("readers say %q", lines.Text())
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() {
			total, _ := strconv.ParseInt(lines.Text(), 10, 64)
			came.Store(total)
		}
	}()
	return func() {
		_ = in.Close()
		<-read
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	}
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
			w.write(benchEvents) // more than those that stop let through
			arrive(&came, 2*benchEvents*others)
			came.Store(0)
			b.StartTimer()
			begin := time.Now()
			w.write(benchEvents)
			arrive(&came, 2*2*benchEvents*others)
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
