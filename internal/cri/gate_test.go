package cri

import (
	"context"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

func gated(cfg *Config) { cfg.Gated = true }

// TestNothingGoesOutBeforeTheRuntimeWasAccepted: on each new connection calls
// wait, no longer than they may take, until who answered Version there is
// accepted.
func TestNothingGoesOutBeforeTheRuntimeWasAccepted(t *testing.T) {
	rt, c, pod, _ := simulated(t, simruntime.Config{}, gated)
	lists := func() int { return rt.CallStats("StreamPodSandboxes").Started }

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.ListPodSandbox(ctx, nil); !TimedOut(err) || lists() != 0 {
		t.Fatalf("before anybody was asked: %v, %d lists", err, lists())
	}
	first, err := c.Identify(t.Context())
	if err != nil || first.Name != "containerd" {
		t.Fatalf("%+v, %v", first, err)
	}
	waits := make(chan error, 1)
	go func() { _, err := c.PodSandboxStatus(t.Context(), pod); waits <- err }()
	select {
	case err := <-waits:
		t.Fatalf("before it was accepted: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	first.Accept()
	if err := <-waits; err != nil {
		t.Errorf("once it was accepted: %v", err)
	}
	if _, err := c.ListPodSandbox(t.Context(), nil); err != nil || lists() != 1 {
		t.Errorf("%v, %d lists", err, lists())
	}

	rt.Restart()
	first.Accept() // says nothing of the new connection
	var second Peer
	eventually(t, "an answer", func() bool { second, err = c.Identify(t.Context()); return err == nil })
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.ListPodSandbox(ctx, nil); !TimedOut(err) || lists() != 1 {
		t.Errorf("after a restart: %v, %d lists", err, lists())
	}
	second.Accept()
	if _, err := c.ListPodSandbox(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestWaitingEndsWithTheConnection: nobody waits for an answer that can't come
// any more.
func TestWaitingEndsWithTheConnection(t *testing.T) {
	rt, c, _, _ := simulated(t, simruntime.Config{}, gated, func(cfg *Config) { cfg.RPCTimeout = time.Hour })
	simtest.Rule(t, rt, simruntime.Rule{Method: "Version", Hang: true})
	go func() { _, _ = c.Version(t.Context()) }() // makes the connection
	eventually(t, "the question", func() bool { return rt.CallStats("Version").Started > 0 })
	waits := make(chan error, 1)
	go func() { _, err := c.ListContainers(t.Context(), nil); waits <- err }()
	select {
	case err := <-waits:
		t.Fatal(err)
	case <-time.After(50 * time.Millisecond):
	}
	rt.Kill()
	if err := <-waits; !Unreachable(err) {
		t.Error(err)
	}
}

// TestStreamOfTheRuntimeThatWasAsked: what was found out of one runtime's
// version doesn't open the stream of the next.
func TestStreamOfTheRuntimeThatWasAsked(t *testing.T) {
	rt, c, _, _ := simulated(t, simruntime.Config{}, gated)
	p, err := c.Identify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Accept()
	rt.Down()
	if err := rt.SetProfile(simruntime.Containerd17); err != nil {
		t.Fatal(err)
	}
	rt.Up()
	var now Peer
	eventually(t, "an answer", func() bool { now, err = c.Identify(t.Context()); return err == nil })
	now.Accept()
	if _, err := c.EventsOf(t.Context(), p); !Unreachable(err) {
		t.Errorf("the stream of the one before: %v", err)
	}
	if n := rt.CallStats("GetContainerEvents").Started; n != 0 {
		t.Errorf("%d subscriptions", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := c.EventsOf(ctx, now)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a subscription", func() bool { return rt.CallStats("GetContainerEvents").Started == 1 })
	cancel()
	if _, err := s.Recv(); err == nil {
		t.Error("goes on after its context")
	}
}
