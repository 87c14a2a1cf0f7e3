package pleg_test

import (
	"fmt"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// TestRetentionBoundsWhatIsHeld: on a full disk as much is held, to be written
// later, as the journal is configured to keep; with more than that history is
// lost.
func TestRetentionBoundsWhatIsHeld(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		keep store.Retention
		lost bool
	}{
		{"by default", store.Retention{}, false},
		{"few entries", store.Retention{Entries: 50}, true},
		{"few bytes", store.Retention{Bytes: 20_000}, true},
		{"enough of both", store.Retention{Entries: 5000, Bytes: 5_000_000}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, simruntime.Config{Seed: 7}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
				cfg.Retention = tc.keep
				var faulty *storetest.Faulty
				a := startAgent(t, pleg.WithStore(cfg, func(s store.Store) store.Store { faulty = storetest.NewFaulty(s); return faulty }), nil)
				time.Sleep(time.Minute)
				before := a.g.Position()
				faulty.FailBefore(-1, store.ErrFull)
				for i := range 30 {
					pod(t, rt, fmt.Sprint("p", i))
					time.Sleep(time.Second)
				}
				now := a.g.Position()
				if told := len(a.g.Status().Asks); told > 0 {
					t.Errorf("%d are still to be asked", told)
				}
				if lost := now.Epoch != before.Epoch; lost != tc.lost {
					t.Errorf("from %v to %v: history lost %v, want %v", before, now, lost, tc.lost)
				}
				faulty.FailBefore(0, nil)
				time.Sleep(time.Minute)
				must(t, a.stop())
			})
		})
	}
}
