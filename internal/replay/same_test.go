package replay

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
)

// The mode that was recorded tells again what it told then, and when.
func TestSameModeTellsTheSame(t *testing.T) {
	for _, mode := range pleg.Modes {
		t.Run(string(mode), func(t *testing.T) {
			cfg := pleg.Config{Mode: mode, RelistPeriodMax: time.Second}
			r := scene{runtime: simruntime.Config{Seed: 1}, config: cfg, happen: busy(1, 20*time.Second)}.record(t)
			got := replayed(t, r.path, cfg)
			if diff := cmp.Diff(words(r.events), words(got)); diff != "" {
				t.Errorf("(-recorded +replayed):\n%s", diff)
			}
			if len(got) < 60 {
				t.Errorf("only %d events", len(got))
			}
			at := times(r.events)
			for k, v := range times(got) {
				if d := time.Duration(v - at[k]).Abs(); d > lag {
					t.Errorf("%s is told %v later or earlier", k, d)
				}
			}
		})
	}
}

// lag is how much later something is told at most: of events at one instant the first
// may be asked about before the last has come, and one pod's looks keep a distance.
const lag = 150 * time.Millisecond

// times is when each was told, ns.
func times(events []pleg.Event) map[string]int64 {
	m := map[string]int64{}
	for i := range events {
		m[string(events[i].Type)+" "+events[i].EntityID()] = events[i].ObservedAt
	}
	return m
}

// The same recording and the same mode give the same bytes, however many processors
// there were before.
func TestSameBytes(t *testing.T) {
	r := scene{runtime: simruntime.Config{Seed: 2}, happen: busy(2, 20*time.Second)}.record(t)
	for _, mode := range pleg.Modes {
		t.Run(string(mode), func(t *testing.T) {
			var first []byte
			for _, procs := range []int{1, 2, 4} {
				before := runtime.GOMAXPROCS(procs)
				got := text(t, replayed(t, r.path, pleg.Config{Mode: mode}))
				runtime.GOMAXPROCS(before)
				if first == nil {
					first = got
				}
				if !shuffled && !bytes.Equal(first, got) {
					t.Fatalf("with %d processors:\n%s", procs, cmp.Diff(string(first), string(got)))
				}
			}
			if bytes.Count(first, []byte("\n")) < 60 {
				t.Errorf("only\n%s", first)
			}
		})
	}
}
