package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/recording"
	"github.com/plegd/plegd/internal/seam"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scene is a runtime that is recorded in virtual time while something happens on it.
type scene struct {
	runtime simruntime.Config
	config  pleg.Config   // of the generator that asks
	late    time.Duration // how much later or earlier a replay may tell something; 0 for a second
	misses  int           // of how many entities it may tell something else
	happen  func(t *testing.T, rt *simruntime.Runtime)
}

// recorded is what came of a scene.
type recorded struct {
	path    string
	events  []pleg.Event // that the recorded generator told
	history []simruntime.Transition
}

// record records a scene.
func (s scene) record(t *testing.T) (r recorded) {
	t.Helper()
	r.path = filepath.Join(t.TempDir(), "recording")
	synctest.Test(t, func(t *testing.T) {
		file, err := os.Create(r.path)
		if err != nil {
			t.Fatal(err)
		}
		rt := simtest.New(t, s.runtime)
		// A runtime takes its time, or nothing would ever be under way.
		if _, err := rt.AddRule(simruntime.Rule{Do: func(simruntime.Op) { time.Sleep(2 * time.Millisecond) }}); err != nil {
			t.Fatal(err)
		}
		lis := bufconn.Listen(1 << 20)
		simtest.Serve(t, rt, lis)
		clock := sysclock.New()
		tap := recording.NewTap(clock)
		cfg := s.config
		cfg.Endpoint, cfg.NodeName, cfg.BootID, cfg.Clock = "/run/bufconn.sock", "recorded", "recorded", clock
		if cfg.RelistPeriod == 0 {
			cfg.RelistPeriod = time.Second
		}
		cfg.RelistPeriodMax = cfg.RelistPeriod
		w, err := recording.NewWriter(file, recording.Header{StartedAt: tap.StartedAt(), Mode: string(cfg.Mode), Period: int64(cfg.RelistPeriod)}, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		seam.Set(&cfg, seam.Hooks{Stats: tap, Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := tap.Record(ctx, func(ctx context.Context) error {
				r.events = generate(t, ctx, cfg)
				return nil
			}, w, nil, 0)
			done <- err
		}()
		s.happen(t, rt)
		cancel()
		if err := errors.Join(<-done, file.Close()); err != nil {
			t.Fatal(err)
		}
		r.history = rt.History()
	})
	return r
}

// generate runs a generator until ctx ends and returns what it told.
func generate(t *testing.T, ctx context.Context, cfg pleg.Config) (events []pleg.Event) { //nolint:revive // the test comes first
	t.Helper()
	g, err := pleg.New(cfg)
	if err != nil {
		t.Error(err)
		return nil
	}
	sub, err := g.Subscribe(nil)
	if err != nil {
		t.Error(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for {
			ev, err := sub.Next(context.Background())
			if err != nil {
				return
			}
			events = append(events, *ev)
		}
	}()
	if err := g.Run(ctx); err != nil && !errors.Is(err, pleg.ErrUnsupported) && !errors.Is(err, store.ErrForeign) {
		t.Error(err)
	}
	<-read
	return events
}

// replayed replays a recording and returns what a generator tells.
func replayed(t *testing.T, path string, cfg pleg.Config) (events []pleg.Event) {
	t.Helper()
	rec, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	rec.run(t, func(ctx context.Context, w *World) int {
		w.Configure(&cfg, seam.Hooks{})
		events = generate(t, ctx, cfg)
		if _, torn := w.End(); torn != nil {
			t.Error(torn)
		}
		return 0
	})
	return events
}

// text is what is the same whenever a recording is replayed.
func text(t *testing.T, events []pleg.Event) []byte {
	t.Helper()
	var b bytes.Buffer
	for i := range events {
		line, err := events[i].MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.Bytes()
}

// busy is a workload for a time.
func busy(seed uint64, d time.Duration) func(*testing.T, *simruntime.Runtime) {
	return func(t *testing.T, rt *simruntime.Runtime) {
		w, err := simruntime.NewWorkload(rt, simruntime.WorkloadConfig{Seed: seed, Pods: 10, Rate: 5, ExitAtOnce: 0.1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	}
}

// words is what was told of each entity, in order, without times.
func words(events []pleg.Event) map[string]string {
	m := map[string]string{}
	for i := range events {
		ev := &events[i]
		word := string(ev.Type)
		if ev.Type == store.ContainerDied {
			word += fmt.Sprint("/", ev.ExitKnown, ev.ExitCode)
		}
		m[ev.EntityID()] += word + string(ev.Change) + " "
	}
	return m
}
