package storetest

import (
	"fmt"
	"strings"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// Epoch is the epoch of the events that this package makes.
var Epoch = timestamps.Epoch{0x5e, 1, 2, 3, 4, 5, 6, 7}

// Runtime is the runtime that the stores of a suite describe.
var Runtime = store.RuntimeID{Endpoint: "unix:///run/test.sock", Name: "testd", Node: "node-1"}

// Meta returns a meta of an epoch at a running time of the agent in ns.
func Meta(epoch timestamps.Epoch, running int64) store.Meta {
	return store.Meta{
		Schema: store.Schema, Runtime: Runtime, Epoch: epoch, Reserved: timestamps.Block, Tick: 7, Running: running,
		Horizon: store.Horizon{Tick: 3, Wall: 4}, BootID: "boot-1",
	}
}

// Container returns a record with every field set, about as large as that of
// a real container. n makes its content differ.
func Container(id, sandbox string, n int) *store.Record {
	e := store.Evidence{Span: timestamps.Call(timestamps.Tick(n), timestamps.Tick(n+1)), State: store.StateDown, Full: true}
	return &store.Record{
		Kind: store.KindContainer, ID: id, Sandbox: sandbox,
		Identity: store.Identity{
			Pod:  store.PodRef{UID: "uid-" + sandbox, Namespace: "default", Name: "pod-" + sandbox},
			Name: "main", Attempt: uint32(n), Image: "registry.example/app:1", Labels: map[string]string{"app": "a", "tier": fmt.Sprint(n)},
		},
		Incarnation: 1, State: store.StateDown, Journaled: store.StateUp, Reported: 2,
		CreatedAt: 1_700_000_000_000_000_000, StartedAt: 1_700_000_001_000_000_000,
		Exit:    store.Exit{Code: int32(n), FinishedAt: 1_700_000_002_000_000_000, Reason: "Error", Message: "it failed"},
		Started: true, ExitSeen: true, FirstSeen: 1, Known: timestamps.Tick(n + 1),
		Evidence: store.Evidences{Identity: e, Reported: e, Created: e, Started: e, Exit: e, Rest: e},
		Rest:     "\x0a\xff\x00" + strings.Repeat("status ", 200), // protobuf is no text
	}
}

// Sandbox returns a record of a sandbox. n makes its content differ.
func Sandbox(id string, n int) *store.Record {
	e := store.Evidence{Span: timestamps.Receipt(timestamps.Tick(n + 1)), State: store.StateUp, Full: true}
	return &store.Record{
		Kind: store.KindSandbox, ID: id, Sandbox: id,
		Identity:    store.Identity{Pod: store.PodRef{UID: "uid-" + id, Namespace: "default", Name: "pod-" + id}, Labels: map[string]string{"app": "a"}},
		Incarnation: 1, State: store.StateUp, Journaled: store.StateUp, Reported: int32(n),
		CreatedAt: 1_700_000_000_000_000_000, IPs: []string{"10.0.0.1", "fd00::1"}, FirstSeen: 1, Known: 2,
		Evidence: store.Evidences{Identity: e, IPs: e}, Rest: strings.Repeat("x", 300),
	}
}

// Tombstone returns a record of a removed container.
func Tombstone(id, sandbox string, n int) *store.Record {
	r := Container(id, sandbox, n)
	r.State, r.Removed, r.RemovedAt = store.StateRemoved, timestamps.Tick(n+1), int64(n)
	return r
}

// Ask returns an entry of the reinspection queue.
func Ask(id string, n int) *store.Ask {
	return &store.Ask{
		ID: id, Kind: store.KindContainer, Why: store.ReasonDetails | store.ReasonNoIP, Since: timestamps.Tick(n + 1),
		Tries: [store.Reasons]uint8{1, 0, 2}, Fails: uint8(n),
	}
}

// Event returns an event of Epoch, written at a running time of the agent in
// ns.
func Event(seq uint64, running int64) store.Event {
	return store.Event{
		Position: timestamps.Position{Epoch: Epoch, Seq: seq}, Type: store.ContainerDied, Incarnation: 1,
		Pod:       store.EventPod{UID: "uid-s1", Namespace: "default", Name: "pod-s1", IP: "10.0.0.1", Labels: map[string]string{"app": "a"}},
		SandboxID: "s1", Container: store.EventContainer{ID: "c1", Name: "main", Attempt: 1, Image: "registry.example/app:1"},
		ExitKnown: true, ExitCode: 7, Reason: "Error", OccurredAt: 1_700_000_002_000_000_000, ObservedAt: 1_700_000_002_100_000_000,
		Source: timestamps.FromStream, BootID: "boot-1", Running: running,
	}
}

// Skip returns the SequenceSkipped entry for the numbers from to to.
func Skip(from, to uint64, running int64) store.Event {
	return store.Event{
		Position: timestamps.Position{Epoch: Epoch, Seq: to + 1}, Type: store.SequenceSkipped,
		ObservedAt: 1, BootID: "boot-1", From: from, To: to, Running: running,
	}
}

// Events returns n events from a number on.
func Events(first uint64, n int, running int64) []store.Event {
	events := make([]store.Event, n)
	for i := range events {
		events[i] = Event(first+uint64(i), running)
	}
	return events
}

// Anew is what a store may begin anew with: another epoch, and nothing to keep.
func Anew() *store.Batch { return &store.Batch{Meta: Meta(timestamps.Epoch{9}, 1)} }
