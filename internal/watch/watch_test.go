package watch_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"go.uber.org/goleak"

	pleg "github.com/plegd/plegd"
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

func TestOnceEnds(t *testing.T) {
	w, err := watch.New(idle(t), watch.Request{Once: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if m, err := w.Next(context.Background()); err != nil || m.Bookmark == nil || m.Bookmark.SnapshotEnd {
			t.Fatalf("message %+v, error %v", m, err)
		}
	}
	if _, err := w.Next(context.Background()); !errors.Is(err, io.EOF) {
		t.Errorf("error %v", err)
	}
}
