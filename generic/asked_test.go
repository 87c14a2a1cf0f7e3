package generic

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// Full lists that the core asks for, over the core itself where it matters
// what it asks.

// listed counts the full lists of a fake and lets them fail.
type listed struct {
	*fake
	at []time.Time // when each was sent
}

func newListed() *listed {
	l := &listed{fake: new(fake)}
	l.works(true)
	return l
}

func (l *listed) works(yes bool) {
	l.change(func() {
		l.sandboxes = func(_ context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
			if f == nil {
				l.change(func() { l.at = append(l.at, time.Now()) })
			}
			if !yes {
				return nil, status.Error(codes.Unavailable, "no socket")
			}
			return nil, nil
		}
	})
}

// since returns how many full lists were sent from t on.
func (l *listed) since(t time.Time) (n int) {
	for _, at := range pick(l.fake, &l.at) {
		if !at.Before(t) {
			n++
		}
	}
	return n
}

// overLoop runs a Relister that answers a real loop.
func overLoop(t *testing.T, cfg Config) (*Relister, *arbiter.Loop) {
	t.Helper()
	clock := sysclock.New()
	loop, err := arbiter.NewLoop(arbiter.Config{Store: store.NewMemory(store.RuntimeID{}, store.Retention{}), Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Sink, cfg.Calls, cfg.Clock = loop, loop.Calls(), clock
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() {
		done <- loop.Run(ctx, arbiter.Hooks{
			Do: r.Do, Relisted: r.Judged, Shrink: r.Shrink,
			Stream: func(s arbiter.StreamState) { r.StreamChanged(s == arbiter.StreamUp) },
		})
	}()
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	return r, loop
}

func stream(loop *arbiter.Loop, state arbiter.StreamState) {
	loop.Submit(&arbiter.StreamChanged{At: loop.Calls().Answered(timestamps.FromStream), State: state, Err: "x"})
}

// TestAskedListsDontPileUp: while lists fail, the core asks again after each;
// of all that there is one list at a time, covered by the periodic one, and
// none is left to be sent when lists work again.
func TestAskedListsDontPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListed()
		r, loop := overLoop(t, Config{Runtime: l})
		stream(loop, arbiter.StreamUp)
		time.Sleep(time.Hour)
		if s := r.Status().Period; s.State != Stretched {
			t.Fatalf("%+v", s)
		}
		const failing = 20 * time.Minute
		l.works(false)
		began := time.Now()
		loop.Submit(&arbiter.StreamOverflow{At: loop.Calls().Answered(timestamps.FromStream), Lost: 1})
		time.Sleep(failing)
		// One a second, and those few that were asked for sooner than that: the
		// back-off takes up to six tries to pass a second.
		if n, most := l.since(began), int(failing/time.Second)+8; n > most {
			t.Errorf("%d lists in %v of failures, want %d at most", n, failing, most)
		}
		l.works(true)
		began = time.Now()
		time.Sleep(2 * time.Second)
		if s := r.Status(); s.Failures != 0 {
			t.Fatalf("not noticed that lists work: %+v", s)
		}
		time.Sleep(10 * time.Minute)
		// From 1 s to 5 min the period doubles: nine lists, and two more fit.
		if n := l.since(began); n > 12 {
			t.Errorf("%d lists in the ten minutes after: those of the outage are still being sent", n)
		}
	})
}

// TestAskedListsBackOffWithoutAPeriod: where lists are only asked for, failing
// ones are asked for ever more rarely, and the stream's return brings one at
// once.
func TestAskedListsBackOffWithoutAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListed()
		r, loop := overLoop(t, Config{Runtime: l, NoPeriod: true})
		stream(loop, arbiter.StreamUp)
		time.Sleep(time.Minute)
		l.works(false)
		began := time.Now()
		stream(loop, arbiter.StreamDown)
		stream(loop, arbiter.StreamUp)
		time.Sleep(20 * time.Minute)
		if n := l.since(began); n < 5 || n > 20 {
			t.Errorf("%d lists in 20 minutes of failures, want some that grow rare", n)
		}
		l.works(true)
		began = time.Now()
		stream(loop, arbiter.StreamDown)
		stream(loop, arbiter.StreamUp)
		time.Sleep(time.Second)
		if n := l.since(began); n != 1 || r.Status().Failures != 0 {
			t.Errorf("%d lists when the stream came back, %+v", n, r.Status())
		}
		time.Sleep(time.Hour)
		if n := l.since(began); n != 1 {
			t.Errorf("%d lists, though one answered all that was asked", n)
		}
	})
}

// TestAGoodListAnswersAllThatWasAsked, due or not; one that fails answers what
// was due and leaves the rest.
func TestAGoodListAnswersAllThatWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListed()
		g := start(t, Config{Runtime: l, NoPeriod: true})
		in := func(d time.Duration) arbiter.Action {
			return arbiter.Action{Kind: arbiter.ActList, NotBefore: int64(g.clock.Mono() + d)}
		}
		g.Do([]arbiter.Action{in(time.Minute), in(10 * time.Second), in(time.Hour)})
		if err := g.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if n := l.since(time.Time{}); n != 1 {
			t.Errorf("%d lists, want one that answers all", n)
		}
		l.works(false)
		g.Do([]arbiter.Action{in(time.Minute)})
		if err := g.Relist(t.Context()); err == nil {
			t.Fatal("it works")
		}
		l.works(true)
		time.Sleep(time.Hour)
		if n := l.since(time.Time{}); n != 3 {
			t.Errorf("%d lists, want one more: a failed one answered what was not due", n)
		}
	})
}

// TestRelistEndsWithClose of a Relister that never ran.
func TestRelistEndsWithClose(t *testing.T) {
	clock := sysclock.New()
	calls := arbiter.NewCalls(clock, new(timestamps.Counter))
	r, err := New(Config{Runtime: new(fake), Sink: &sink{calls: calls}, Calls: calls, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- r.Relist(context.Background()) }()
	r.Close()
	r.Close()
	if err := <-done; !errors.Is(err, ErrStopped) {
		t.Error(err)
	}
}

// TestPromisedPeriod: the period by which the next list was to come stays what
// it was when the period shrinks, until a list has come.
func TestPromisedPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListed()
		r, loop := overLoop(t, Config{Runtime: l})
		if p := r.Status().Promised; p != DefaultBase {
			t.Errorf("%v at the start", p)
		}
		stream(loop, arbiter.StreamUp)
		time.Sleep(time.Hour)
		l.works(false)
		stream(loop, arbiter.StreamDown)
		time.Sleep(10 * time.Second)
		if s := r.Status(); s.Promised != DefaultMax || s.Period.Period != DefaultBase {
			t.Errorf("while lists fail: %v, period %v", s.Promised, s.Period.Period)
		}
		l.works(true)
		time.Sleep(2 * time.Second)
		if s := r.Status(); s.Promised != DefaultBase {
			t.Errorf("when they work again: %v", s.Promised)
		}
	})
}
