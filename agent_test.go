package pleg_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	pleg "github.com/plegd/plegd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agent is a generator that runs until stopped, and everything it told.
type agent struct {
	t      *testing.T
	g      *pleg.Generator
	cancel context.CancelFunc
	done   chan error
	sub    *pleg.Subscription
	events []pleg.Event
}

// startAgent runs a generator. It reads from the position given, nil from now.
func startAgent(t *testing.T, cfg pleg.Config, from *pleg.Position) *agent {
	t.Helper()
	if testing.Verbose() && cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	g, err := pleg.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, g: g, done: make(chan error, 1)}
	if a.sub, err = g.Subscribe(from); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	go func() { a.done <- g.Run(ctx) }()
	t.Cleanup(cancel)
	return a
}

// stop ends the agent and returns what Run returned.
func (a *agent) stop() error {
	a.t.Helper()
	a.cancel()
	select {
	case err := <-a.done:
		return err
	case <-time.After(5 * time.Second):
		a.t.Fatal("Run did not return within 5 s of its context's end")
		return nil
	}
}

// read takes all events that are published by now.
func (a *agent) read() []pleg.Event {
	a.t.Helper()
	end := a.g.Position()
	for a.sub.Position().Seq < end.Seq {
		ev, err := a.sub.Next(context.Background())
		if err != nil {
			a.t.Fatal(err)
		}
		a.events = append(a.events, *ev)
	}
	return a.events
}

// settle relists until nothing is left to find out.
func (a *agent) settle() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for range 3 {
		if err := a.g.Relist(ctx); err != nil {
			a.t.Fatal(err)
		}
	}
	waitFor(a.t, "an empty reinspection queue", func() bool { return len(a.g.Status().Asks) == 0 })
}

func waitFor(t *testing.T, what string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !met(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
