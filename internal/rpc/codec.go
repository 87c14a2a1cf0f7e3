package rpc

import (
	"sync/atomic"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/unsent"
)

// raw is a message that is encoded already.
type raw []byte

// codec takes raw messages too.
type codec struct{ unsent.Codec }

// Marshal implements [google.golang.org/grpc/encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.Codec.Marshal(v)
}

const (
	// encodedEvents are kept for other watches, as many as come in a second or two of
	// a very busy node: watches that keep up are no further apart.
	encodedEvents = 2048
	// encodedBytes is the largest that is kept. With the labels of most pods an event
	// has a few hundred bytes, so that what is kept is less than 1 MiB, and never
	// more than 4.
	encodedBytes = 2 << 10
	// fields of WatchResponse and Events, checked by TestEncodedByHand.
	fieldEvents, fieldEvent, fieldPosition = protowire.Number(2), protowire.Number(1), protowire.Number(2)
)

// encoder keeps the newest events as they are sent: most watches send the same
// ones at the same time. It is safe for concurrent use.
type encoder struct {
	slots [encodedEvents]atomic.Pointer[encodedEvent]
}

type encodedEvent struct {
	position pleg.Position
	volatile bool
	bytes    []byte // the event as an entry of Events
}

// event returns an event as an entry of Events. It is shared.
func (e *encoder) event(ev *pleg.Event) ([]byte, error) {
	slot := &e.slots[ev.Position.Seq%encodedEvents]
	if kept := slot.Load(); kept != nil && kept.position == ev.Position && kept.volatile == ev.Volatile {
		return kept.bytes, nil
	}
	b, err := encodeEvent(ev, false)
	if err == nil && len(b) <= encodedBytes {
		slot.Store(&encodedEvent{position: ev.Position, volatile: ev.Volatile, bytes: b})
	}
	return b, err
}

// encodeEvent encodes an event as an entry of Events.
func encodeEvent(ev *pleg.Event, live bool) ([]byte, error) {
	m := protoEvent(ev)
	m.Live = live
	n := protobuf.Size(m)
	b := make([]byte, 0, protowire.SizeTag(fieldEvent)+protowire.SizeBytes(n))
	b = protowire.AppendTag(b, fieldEvent, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(n))
	return protobuf.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
}

// eventsMessage is a WatchResponse of encoded entries, and of the position to go on
// from if one is given.
func eventsMessage(entries [][]byte, size int, position string) raw {
	if position != "" {
		size += protowire.SizeTag(fieldPosition) + protowire.SizeBytes(len(position))
	}
	b := make([]byte, 0, protowire.SizeTag(fieldEvents)+protowire.SizeBytes(size))
	b = protowire.AppendTag(b, fieldEvents, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	for _, entry := range entries {
		b = append(b, entry...)
	}
	if position != "" {
		b = protowire.AppendTag(b, fieldPosition, protowire.BytesType)
		b = protowire.AppendString(b, position)
	}
	return b
}
