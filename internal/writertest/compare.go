package writertest

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// Events are written in each measurement of Compare: for half a second or so, since
// what a burst costs when a hundred readers wake at its beginning is the same however
// long it is.
const Events = 20_000

// Compare measures how many events a second go through queue, core, commit and
// publication while nobody reads, and while so many readers do; ratio is what is left
// with them. serve has an API serve a writer at the socket that it returns, until tb ends.
//
// The writer slows as its file and its memory grow, so each measurement has one of its own,
// and what else the machine does concerns both kinds: they come in pairs, each first in every
// other. With no readers ratio is 1 but for chance. What readers leave for after the last
// event, a benchmark of what they read in all shows.
func Compare(b *testing.B, readers int, serve func(tb testing.TB, w *Writer) (socket string)) {
	var alone, watched time.Duration
	pairs := 0
	for b.Loop() {
		for _, readFirst := range []bool{false, true} {
			for _, read := range []bool{readFirst, !readFirst} {
				if read {
					watched += measure(b, readers, serve)
				} else {
					alone += measure(b, 0, serve)
				}
			}
			pairs++
		}
	}
	n := float64(pairs) * Events
	b.ReportMetric(n/alone.Seconds(), "alone/s")
	b.ReportMetric(n/watched.Seconds(), "watched/s")
	b.ReportMetric(alone.Seconds()/watched.Seconds(), "ratio")
}

// measure returns how long a new writer takes for Events.
func measure(b *testing.B, readers int, serve func(tb testing.TB, w *Writer) (socket string)) time.Duration {
	b.StopTimer()
	defer b.StartTimer()
	s := &scope{TB: b}
	defer s.end()
	w := Start(s)
	socket := serve(s, w)
	w.Write(1000) // all that is made once is made
	var came atomic.Int64
	s.Cleanup(Subscribe(s, socket, readers, &came))
	runtime.GC()
	b.StartTimer()
	took := w.Write(Events)
	b.StopTimer()
	if readers > 0 && came.Load() == 0 {
		b.Error("no event came to the readers")
	}
	return took
}

// scope is a part of a benchmark, whose cleanups are done at its end.
type scope struct {
	testing.TB
	cleanups []func()
}

// Cleanup implements [testing.TB].
func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) end() {
	for len(s.cleanups) > 0 {
		f := s.cleanups[len(s.cleanups)-1]
		s.cleanups = s.cleanups[:len(s.cleanups)-1]
		f()
	}
}
