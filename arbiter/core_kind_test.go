package arbiter

import (
	"slices"
	"testing"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// TestEventMistakesASandbox: an event about B with another sandbox's payload
// makes B a container, as far as events go. A list that shows B to be a sandbox
// is right, since no call has ever shown the container: what was told of it is
// told to be over, and nothing of it stands in the sandbox's way (O1).
func TestEventMistakesASandbox(t *testing.T) {
	const second = 1_000_000_000
	a := Item{Kind: store.KindSandbox, ID: "A", Sandbox: "A", CreatedAt: second, IPs: []string{"10.0.0.5"}, Full: true, Rest: "A"}
	b := Item{Kind: store.KindSandbox, ID: "B", Sandbox: "B", CreatedAt: second}
	wrong := Item{Kind: store.KindContainer, ID: "B", Sandbox: "A", State: criContainerRunning, CreatedAt: second, StartedAt: second, Full: true, Rest: "B"}
	for name, payload := range map[string][]Item{"listed in the payload": {wrong}, "named by the type alone": nil} {
		t.Run(name, func(t *testing.T) {
			c := NewCore(Limits{}, "")
			var tick timestamps.Tick
			stamp := func() timestamps.Stamp {
				tick++
				return timestamps.Stamp{Tick: tick, Wall: int64(tick) * second, Mono: int64(tick) * second}
			}
			var told []store.EventType
			var last store.Batch
			step := func(in Input) {
				out := c.Step(Now{Stamp: stamp()}, in)
				for _, ev := range out.Changes.Events {
					if entityOf(&ev) == "B" {
						told = append(told, ev.Type)
					}
				}
				last = out.Changes
			}
			list := func(items ...Item) {
				sandboxes := Call{Sent: stamp(), Answered: stamp()}
				step(&ListSeen{Sandboxes: items, SandboxCall: sandboxes, ContainerCall: Call{Sent: stamp(), Answered: stamp()}})
			}
			list(a)
			at := stamp()
			step(&EventSeen{At: at, Type: EventStarted, ID: "B", CreatedAt: at.Wall, Sandbox: &a, Containers: payload})
			list(a, b)
			if e := c.ents["B"]; e == nil || e.rec.Kind != store.KindSandbox || e.rec.State != store.StateUp || c.tombs["B"] != nil {
				t.Fatalf("B is %+v, tombstone %v", e, c.tombs["B"])
			}
			if !slices.ContainsFunc(last.Records, func(r *store.Record) bool { return r.ID == "B" && r.Kind == store.KindSandbox }) {
				t.Errorf("the sandbox is not stored: %+v", last.Records)
			}
			if gone := slices.Contains(last.Gone, store.Key{Kind: store.KindContainer, ID: "B"}); !gone {
				t.Errorf("the container stays stored: %v", last.Gone)
			}
			want := []store.EventType{store.SandboxCreated}
			if payload != nil {
				want = []store.EventType{store.ContainerCreated, store.ContainerStarted, store.ContainerDied, store.ContainerRemoved, store.SandboxCreated}
			}
			if !slices.Equal(told, want) {
				t.Errorf("told %v, want %v", told, want)
			}
			var p pending
			p.add(&Output{Changes: last})
			if parts := p.split(); len(parts) != 1 || len(parts[0].batch.Gone) != 1 || len(parts[0].batch.Records) == 0 {
				t.Errorf("written in %d parts: %+v", len(parts), parts)
			}
		})
	}
}
