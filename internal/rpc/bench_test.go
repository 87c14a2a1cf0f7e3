package rpc_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/rpc"
	"github.com/plegd/plegd/internal/writertest"
)

// startWriter starts a writer, and serves it.
func startWriter(b *testing.B) (*writertest.Writer, string) {
	b.Helper()
	w := writertest.Start(b)
	return w, serveWriter(b, w)
}

func serveWriter(tb testing.TB, w *writertest.Writer) string {
	tb.Helper()
	socket, _ := serve(tb, rpc.Config{Health: w.Health, Source: func() (rpc.Source, error) { return w, nil }})
	return socket
}

const (
	benchWatches = 100
	benchEvents  = 2000 // each two entries of the journal
)

// BenchmarkNobody shows what BenchmarkWriter errs by: its ratio should be 1.
func BenchmarkNobody(b *testing.B) {
	writertest.Compare(b, 0, serveWriter)
}

// BenchmarkWriter measures what 100 watches cost the writer: see Compare.
func BenchmarkWriter(b *testing.B) {
	writertest.Compare(b, benchWatches, serveWriter)
}

// BenchmarkFanOut measures how many events a second come to 100 watches that have
// the same history to read.
func BenchmarkFanOut(b *testing.B) {
	w, socket := startWriter(b)
	var took time.Duration
	for b.Loop() {
		var came atomic.Int64
		stop := writertest.Subscribe(b, socket, benchWatches, &came)
		begin := time.Now()
		w.Write(benchEvents)
		writertest.Arrive(&came, 2*benchEvents*benchWatches)
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
			stop := writertest.Subscribe(b, socket, others, &came)
			w.Write(benchEvents) // more than those that stop let through
			writertest.Arrive(&came, 2*benchEvents*others)
			came.Store(0)
			b.StartTimer()
			begin := time.Now()
			w.Write(benchEvents)
			writertest.Arrive(&came, 2*2*benchEvents*others)
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
