package arbiter

import (
	"fmt"
	"testing"
	"time"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// BenchmarkLoop measures how many events of new sandboxes a second go through
// queue, core, commit and publication, at the default commit rate.
func BenchmarkLoop(b *testing.B) {
	stores := map[string]func(b *testing.B) store.Store{
		"store=memory": func(*testing.B) store.Store { return memory() },
		"store=bolt": func(b *testing.B) store.Store {
			s, _, err := store.OpenBolt(store.BoltConfig{Dir: b.TempDir(), Runtime: storetest.Runtime})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			return s
		},
	}
	for name, open := range stores {
		b.Run(name, func(b *testing.B) {
			d := drive(b, open(b))
			d.sync()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				for ev := d.up(fmt.Sprint("s", i)); !d.SubmitEvent(ev); {
					time.Sleep(100 * time.Microsecond)
				}
			}
			for d.Position().Seq < uint64(2*b.N) {
				time.Sleep(100 * time.Microsecond)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.StopTimer()
			d.stop()
		})
	}
}

// BenchmarkLoopIdleRelist measures a relist that finds nothing.
func BenchmarkLoopIdleRelist(b *testing.B) {
	for _, n := range []int{250, 2500} {
		b.Run(fmt.Sprintf("sandboxes=%d", n), func(b *testing.B) {
			d := drive(b, memory())
			all := items(names("s", n))
			d.sync(all...)
			b.ReportAllocs()
			for b.Loop() {
				d.sync(all...)
			}
			b.StopTimer()
			d.stop()
		})
	}
}

// BenchmarkSubscription measures reading the journal, from memory and from the
// store.
func BenchmarkSubscription(b *testing.B) {
	for _, from := range []string{"memory", "store"} {
		b.Run("from="+from, func(b *testing.B) {
			s, _, err := store.OpenBolt(store.BoltConfig{Dir: b.TempDir(), Runtime: storetest.Runtime})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			d := drive(b, s)
			d.sync(items(names("s", 1000))...)
			if from == "store" {
				d.feed.mu.Lock()
				d.feed.prev, d.feed.tail = d.feed.tail[len(d.feed.tail)-1].Position, nil
				d.feed.mu.Unlock()
			}
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; {
				n += len(d.after(d.beginning()))
			}
			b.StopTimer()
			d.stop()
		})
	}
}
