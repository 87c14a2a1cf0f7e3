package pleg_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
)

// relisting asks for a relist and returns where its error will come.
func relisting(g *pleg.Generator) <-chan error {
	c := make(chan error, 1)
	go func() { c <- g.Relist(context.Background()) }()
	return c
}

// TestRelistEndsWithTheGenerator also where no relist was ever possible: the
// runtime was never known, or the generator never run.
func TestRelistEndsWithTheGenerator(t *testing.T) {
	t.Parallel()
	stopped := func(t *testing.T, what string, c <-chan error) {
		t.Helper()
		select {
		case err := <-c:
			if !errors.Is(err, pleg.ErrStopped) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: it goes on waiting", what)
		}
	}
	cfg := pleg.Config{Endpoint: filepath.Join(t.TempDir(), "none.sock")}
	g, err := pleg.New(cfg)
	must(t, err)
	c := relisting(g)
	must(t, g.Close())
	stopped(t, "never run", c)
	stopped(t, "closed", relisting(g))

	a := startAgent(t, cfg, nil)
	c = relisting(a.g)
	time.Sleep(50 * time.Millisecond)
	a.finish()
	stopped(t, "runtime never known", c)
	stopped(t, "ended", relisting(a.g))
}
