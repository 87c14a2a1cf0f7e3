package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// life runs one container of a pod from its creation to its removal.
func life(t *testing.T, rt *simruntime.Runtime, pod, name string, code int32) (id string) {
	t.Helper()
	id, err := rt.CreateContainer(pod, simruntime.ContainerSpec{Name: name})
	for _, step := range []func() error{
		func() error { return err },
		func() error { return rt.StartContainer(id) },
		func() error { return rt.ExitContainer(id, code, "") },
		func() error { return rt.RemoveContainer(id) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

// newPod runs a pod.
func newPod(t *testing.T, rt *simruntime.Runtime, name string) (id string) {
	t.Helper()
	id, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: name, UID: "uid-" + name})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// ends reports the last event of a container's life.
func ends(id string) func(store.Event) bool {
	return func(ev store.Event) bool { return ev.Type == store.ContainerRemoved && ev.Container.ID == id }
}

// checkOrder checks that positions are of one epoch and grow, without a gap
// that no SequenceSkipped tells of.
func checkOrder(t *testing.T, events []store.Event) {
	t.Helper()
	for i := 1; i < len(events); i++ {
		a, b := events[i-1].Position, events[i].Position
		skipped := events[i].Type == store.SequenceSkipped && events[i].From <= a.Seq+1 && events[i].To+1 == b.Seq
		if a.Epoch != b.Epoch || b.Seq != a.Seq+1 && !skipped {
			t.Errorf("%s %s is followed by %s %s", a, events[i-1].Type, b, events[i].Type)
		}
	}
}

// reader collects events from an agent's stdout.
type reader struct {
	mu     sync.Mutex
	events []store.Event
	err    error
	done   chan struct{}
}

// read starts to read an agent's JSON events.
func (c *child) read() *reader {
	r := &reader{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		lines := bufio.NewScanner(c.out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var ev store.Event
			err := json.Unmarshal(lines.Bytes(), &ev)
			r.mu.Lock()
			r.err = errors.Join(r.err, err)
			r.events = append(r.events, ev)
			r.mu.Unlock()
		}
	}()
	c.t.Cleanup(func() { <-r.done })
	return r
}

// all returns what was read so far.
func (r *reader) all(t *testing.T) []store.Event {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		t.Fatalf("stdout: %v", r.err)
	}
	return append([]store.Event(nil), r.events...)
}

// await waits until an event satisfies is, and returns all until then.
func (r *reader) await(t *testing.T, what string, is func(store.Event) bool) []store.Event {
	t.Helper()
	var events []store.Event
	eventually(t, what, func() bool {
		events = r.all(t)
		for _, ev := range events {
			if is(ev) {
				return true
			}
		}
		return false
	})
	return events
}

// serveAt serves a runtime on a path until stop, or the end of the test.
func serveAt(t *testing.T, rt *simruntime.Runtime, path string) (stop func()) {
	t.Helper()
	lis, err := simruntime.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rt.Serve(ctx, lis) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
