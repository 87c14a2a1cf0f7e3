package watch_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/selection"
	"github.com/plegd/plegd/internal/watch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// idle is a generator that was not run: nothing happens in it.
func idle(t *testing.T) *pleg.Generator {
	t.Helper()
	g, err := pleg.New(pleg.Config{Endpoint: "unix:///nowhere/cri.sock"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func begin(t *testing.T, src watch.Source, r watch.Request) *watch.Watch {
	t.Helper()
	w, err := watch.New(src, r)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func next(t *testing.T, w *watch.Watch) watch.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Hour) // of virtual time
	defer cancel()
	m, err := w.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestOnceEnds(t *testing.T) {
	w := begin(t, idle(t), watch.Request{Once: true})
	for range 2 {
		if m := next(t, w); m.Bookmark == nil || m.Bookmark.SnapshotEnd {
			t.Fatalf("message %+v", m)
		}
	}
	for range 2 {
		if _, err := w.Next(context.Background()); !errors.Is(err, io.EOF) {
			t.Errorf("error %v", err)
		}
	}
}

// Nothing is silent for longer than it says, and says no more than that.
func TestKeepalive(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{0: 30 * time.Second, time.Second: time.Second, time.Hour: time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, idle(t), watch.Request{Keepalive: asked})
			at := time.Now()
			if m := next(t, w); m.Bookmark == nil || !time.Now().Equal(at) {
				t.Errorf("first %+v after %v", m, time.Since(at))
			}
			for range 3 {
				at := time.Now()
				if m := next(t, w); m.Bookmark == nil || time.Since(at) != want {
					t.Errorf("keepalive %v: %+v after %v", asked, m, time.Since(at))
				}
			}
		})
	}
}

// The end of the reader's context is the end of the wait, and not silence.
func TestContextEnds(t *testing.T) {
	w := begin(t, idle(t), watch.Request{})
	next(t, w)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if m, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("message %+v, error %v", m, err)
	}
}

func TestBadRequests(t *testing.T) {
	g := idle(t)
	at := g.Position()
	for want, r := range map[string]watch.Request{
		"only one may be set":              {Position: &at, Snapshot: true},
		"three ways":                       {Position: &at, Time: time.Unix(1, 0)},
		"keepalive 999ms: must be from 1s": {Keepalive: 999 * time.Millisecond},
		"to 1h0m0s":                        {Keepalive: time.Hour + 1},
		"must not be in the future":        {Time: time.Now().Add(time.Minute)},
	} {
		if _, err := watch.New(g, r); !errors.Is(err, watch.ErrRequest) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := watch.New(g, watch.Request{Snapshot: true}); !errors.Is(err, watch.ErrUnknown) {
		t.Errorf("a snapshot before anything was listed: %v", err)
	}
	other := pleg.Position{Epoch: [8]byte{1}, Seq: 3}
	if _, err := watch.New(g, watch.Request{Position: &other}); !errors.Is(err, pleg.ErrExpired) {
		t.Errorf("a position of another agent: %v", err)
	}
	if _, err := watch.New(notLive{g}, watch.Request{Live: true}); !errors.Is(err, watch.ErrNotLive) {
		t.Errorf("live from what isn't: %v", err)
	}
}

// notLive hides that a generator has live events.
type notLive struct{ watch.Source }

// A watch that selects nothing says how far it has come, however much goes by, and
// that it may pause.
func TestNothingSelected(t *testing.T) {
	n := rpctest.New(t)
	a := n.Start()
	from := a.Generator.Position()
	for range 60 {
		n.Remove(n.Pod("web"))
	}
	a.Settle()
	sel, err := selection.New(selection.Filter{Pods: []string{"none"}})
	if err != nil {
		t.Fatal(err)
	}
	pauses := 0
	w := begin(t, a.Generator, watch.Request{Position: &from, Selection: sel, Once: true, Idle: func() error { pauses++; return nil }})
	next(t, w)
	m := next(t, w)
	if end := a.Generator.Position(); m.Bookmark == nil || m.Bookmark.Position != end || w.Position() != end {
		t.Errorf("message %+v, want a bookmark at %s", m, end)
	}
	if read := len(a.Journal()); pauses != read/256 || pauses == 0 {
		t.Errorf("%d events read with %d pauses", read, pauses)
	}
}

// What is skipped on the way to a time is read in turns too, and told of when that
// takes long.
func TestSkipsInTurns(t *testing.T) {
	n := rpctest.New(t)
	a := n.Start()
	for range 60 {
		n.Remove(n.Pod("web"))
	}
	a.Settle()
	cut := time.Now()
	n.Remove(n.Pod("last"))
	a.Settle()
	pauses := 0
	pause := func() error { pauses++; return nil }
	w := begin(t, a.Generator, watch.Request{Time: cut, Idle: pause})
	if pauses != 0 {
		t.Error("something was read before it was asked for")
	}
	m := next(t, w)
	if pauses != 1 || m.Bookmark == nil {
		t.Errorf("%d pauses, message %+v", pauses, m)
	}
	if m := next(t, w); m.Event == nil || m.Event.Pod.Name != "last" {
		t.Errorf("message %+v, want the first event of the last pod", m)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if m, err := begin(t, a.Generator, watch.Request{Time: cut}).Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("it goes on for who is gone: %+v, %v", m, err)
	}
}

// trimmed is a source whose oldest position is dropped right after it was told, for
// the first so many times.
type trimmed struct {
	watch.Source
	times int
}

func (s *trimmed) Oldest() pleg.Position {
	at := s.Source.Oldest()
	if s.times--; s.times >= 0 {
		at.Epoch[0] ^= byte(s.times + 1)
	}
	return at
}

// A time doesn't expire: what is kept is what there is.
func TestTimeDoesNotExpire(t *testing.T) {
	n := rpctest.New(t)
	a := n.Start()
	n.Pod("web")
	a.Settle()
	events := 0
	w := begin(t, &trimmed{a.Generator, 5}, watch.Request{Time: time.Unix(1, 0), Once: true})
	for {
		m, err := w.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if m.Event != nil {
			events++
		}
	}
	if want := len(a.Journal()); events != want {
		t.Errorf("%d events, want %d", events, want)
	}
}

// An error of Idle ends the wait.
func TestIdleFails(t *testing.T) {
	broken := errors.New("broken")
	w := begin(t, idle(t), watch.Request{Idle: func() error { return broken }})
	next(t, w)
	if _, err := w.Next(context.Background()); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

// Restored pods are known before the first list, and pods that were never listed
// are not.
func TestPodsBeforeTheFirstList(t *testing.T) {
	n := rpctest.New(t)
	n.Pod("web")
	a := n.Start()
	a.Settle()
	a.Stop()
	n.Runtime.Freeze()
	defer n.Runtime.Thaw()
	a = n.StartUnready()
	sel, err := selection.New(selection.Filter{Pods: []string{"other"}})
	if err != nil {
		t.Fatal(err)
	}
	if pods, _, err := watch.Pods(a.Generator, sel); !errors.Is(err, watch.ErrUnknown) {
		t.Errorf("nothing is known of what was chosen, and that is taken for none: %v, %v", pods, err)
	}
	pods, at, err := watch.Pods(a.Generator, nil)
	if err != nil || len(pods) != 1 || at != a.Generator.Position() {
		t.Errorf("pods %v at %s, %v", pods, at, err)
	}
	if pod, err := watch.Pod(a.Generator, "uid-web"); err != nil || !pod.Restored {
		t.Errorf("pod %v, %v", pod, err)
	}
	if _, err := watch.Pod(a.Generator, "uid-db"); !errors.Is(err, watch.ErrUnknown) || errors.Is(err, pleg.ErrNoPod) {
		t.Errorf("a pod that may have come: %v", err)
	}
}
