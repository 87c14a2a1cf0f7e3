package replay

import (
	"context"
	"os"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
)

// An hour of 100 pods with 5 transitions a second takes less than 10 MiB, as far as some
// minutes of it can say.
func TestRecordingIsSmall(t *testing.T) {
	const minutes = 2
	r := scene{config: pleg.Config{Mode: pleg.ModeHybrid}, happen: func(t *testing.T, rt *simruntime.Runtime) {
		w, err := simruntime.NewWorkload(rt, simruntime.WorkloadConfig{Seed: 1, Pods: 100, Rate: 5, Containers: 2})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Fill(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), minutes*time.Minute)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	}}.record(t)
	info, err := os.Stat(r.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, %d transitions", info.Size(), len(r.history))
	if hour := info.Size() * 60 / minutes; hour > 10<<20 {
		t.Errorf("%d bytes in %d minutes are %d in an hour", info.Size(), minutes, hour)
	}
}
