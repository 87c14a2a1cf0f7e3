package rpc

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// drawEvent draws an event with some fields and without others.
func drawEvent(t *rapid.T) *pleg.Event {
	word := rapid.StringN(0, 12, 40)
	return &pleg.Event{
		Position: pleg.Position{Epoch: timestamps.Epoch{byte(rapid.IntRange(1, 3).Draw(t, "epoch"))}, Seq: uint64(rapid.IntRange(1, 2000).Draw(t, "seq"))},
		Type:     rapid.SampledFrom([]store.EventType{store.SandboxReady, store.ContainerDied, store.SequenceSkipped}).Draw(t, "type"),
		Pod: store.EventPod{
			UID: word.Draw(t, "uid"), Labels: rapid.MapOfN(word, rapid.StringN(0, 3000, 8000), 0, 3).Draw(t, "labels"),
		},
		Container: store.EventContainer{ID: word.Draw(t, "container")}, Changed: rapid.SliceOfN(word, 0, 3).Draw(t, "changed"),
		ExitKnown: rapid.Bool().Draw(t, "known"), ExitCode: rapid.Int32().Draw(t, "code"), OccurredAt: rapid.Int64().Draw(t, "occurred"),
		ObservedAt: rapid.Int64Range(1, 1<<60).Draw(t, "observed"), Volatile: rapid.Bool().Draw(t, "volatile"), Source: timestamps.FromRelist,
	}
}

// What is put together by hand, and kept for other watches, is what the protobuf
// library would write: also where two events would be kept in one place.
func TestEncodedByHand(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s encoder
		var entries [][]byte
		want, size, seen := &plegdv1.Events{}, 0, map[pleg.Position]bool{}
		for _, ev := range rapid.SliceOfN(rapid.Custom(drawEvent), 1, 12).Draw(t, "events") {
			// The same position has the same content, but for Volatile, which changes when
			// the event is written.
			if seen[ev.Position] {
				continue
			}
			seen[ev.Position] = true
			for i := range 4 {
				ev := *ev
				ev.Volatile = i%3 == 0
				entry, err := s.event(&ev)
				if err != nil {
					t.Fatal(err)
				}
				entries, size = append(entries, entry), size+len(entry)
				want.Events = append(want.Events, protoEvent(&ev))
			}
		}
		want.Position = rapid.SampledFrom([]string{"", "9f010203040506ab/7"}).Draw(t, "position")
		var got plegdv1.WatchResponse
		if err := proto.Unmarshal(eventsMessage(entries, size, want.Position), &got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got.GetEvents(), want) {
			t.Fatalf("got\n%v\nwant\n%v", got.GetEvents(), want)
		}
	})
}
