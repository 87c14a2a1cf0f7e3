package unsent

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/encoding"
	codec "google.golang.org/grpc/encoding/proto" // registers what Codec wraps
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/plegd/plegd/internal/crowd"
)

// Budget is how many bytes may wait, of all clients together. It is safe for
// concurrent use.
type Budget struct {
	most  int64
	taken atomic.Int64
	stall time.Duration
}

// New returns a budget. An answer that is not taken within stall is cut.
func New(most int64, stall time.Duration) *Budget {
	return &Budget{most: most, stall: stall}
}

// Take takes room for so many bytes, until give is called, if there is. What is
// larger than all there may be takes all.
func (b *Budget) Take(n int) (give func(), ok bool) {
	share := min(int64(n), b.most)
	if !b.take(share) {
		return nil, false
	}
	return sync.OnceFunc(func() { b.give(share) }), true
}

// Fits reports whether there would be room for so many bytes now: for who needs not
// make at all what wouldn't be sent.
func (b *Budget) Fits(n int) bool { return b.taken.Load()+min(int64(n), b.most) <= b.most }

func (b *Budget) take(n int64) bool {
	for {
		taken := b.taken.Load()
		if taken+n > b.most {
			return false
		}
		if b.taken.CompareAndSwap(taken, taken+n) {
			return true
		}
	}
}

func (b *Budget) give(n int64) { b.taken.Add(-n) }

// PerItem is what an item takes in a list besides itself at most, bytes: its tag and
// length.
const PerItem = 6

// Parts have room for several messages that are sent one after the other.
type Parts struct{ gives []func() }

// TakeParts takes room for messages of these sizes, if there is room for all. Of
// what is larger than all there may be the first ones have none: so what is left to
// send has room as soon as it fits.
func (b *Budget) TakeParts(sizes []int) (p Parts, ok bool) {
	left := b.most
	gives := make([]func(), len(sizes))
	for i := len(sizes) - 1; i >= 0; i-- {
		share := min(left, int64(sizes[i]))
		left -= share
		gives[i] = sync.OnceFunc(func() { b.give(share) })
	}
	if !b.take(b.most - left) {
		return Parts{}, false
	}
	return Parts{gives}, true
}

// Send has the messages sent one after the other, until one fails: send sends what Of
// the part makes of a message. The room of a message is then that of the answer (see
// Hold), so a list that has begun finds room to its end.
func (p Parts) Send(send func(i int, part *Part) error) error {
	for i, give := range p.gives {
		part := &Part{give: give}
		err := send(i, part)
		if !part.held { // it came to no Hold
			give()
		}
		if err != nil {
			for _, give := range p.gives[i+1:] {
				give()
			}
			return err
		}
	}
	return nil
}

// Part is a message that has room already.
type Part struct {
	message proto.Message
	give    func()
	held    bool // by an answer, which gives the room back
}

// Of returns the part with its message, to be given to Hold.
func (p *Part) Of(m proto.Message) *Part {
	p.message = m
	return p
}

// Answer is a message that has room until it is taken, or its call or connection
// ends. It is to be sent at once, with [Codec].
type Answer struct {
	message proto.Message
	size    int
	ended   func()
}

// Hold has a message count until it is taken, and reports false if there is no room
// for it; a Part has it. It returns what is to be sent: small messages are sent as they
// are, since gRPC bounds how many there are, and so is what is no message of protobuf.
// If the message is not taken in time, cut is called, to end the connection. Without a
// connection nothing counts.
func (b *Budget) Hold(m any, conn *crowd.Guest, cut func()) (send any, ok bool) {
	part, _ := m.(*Part)
	if part != nil {
		m = part.message
	}
	msg, ok := m.(proto.Message)
	if !ok || conn == nil {
		return m, true
	}
	size := proto.Size(msg)
	if mem.IsBelowBufferPoolingThreshold(size) {
		return m, true
	}
	var give func()
	if part != nil {
		give, part.held = part.give, true
	} else if give, ok = b.Take(size); !ok {
		return nil, false
	}
	late := time.AfterFunc(b.stall, cut)
	a := &Answer{message: msg, size: size}
	// When a connection ends, gRPC forgets what was queued.
	forget := context.AfterFunc(conn.Context(), func() {
		late.Stop()
		give()
	})
	a.ended = func() {
		forget()
		late.Stop()
		give()
	}
	return a, true
}

// marshal encodes the message into a buffer of which gRPC says when it is done
// with it.
func (a *Answer) marshal() (mem.BufferSlice, error) {
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(make([]byte, 0, a.size), a.message)
	if err != nil {
		a.ended()
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(&b, done{a.ended})}, nil
}

// done is the pool to which a buffer comes back when it was sent or dropped.
type done struct{ ended func() }

// Get implements [mem.BufferPool].
func (done) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

// Put implements [mem.BufferPool].
func (d done) Put(*[]byte) { d.ended() }

// Codec is gRPC's for protobuf, and takes an Answer too.
type Codec struct{}

// Name implements [encoding.CodecV2].
func (Codec) Name() string { return codec.Name }

// Marshal implements [encoding.CodecV2].
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	if a, ok := v.(*Answer); ok {
		return a.marshal()
	}
	return encoding.GetCodecV2(codec.Name).Marshal(v)
}

// Unmarshal implements [encoding.CodecV2].
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	return encoding.GetCodecV2(codec.Name).Unmarshal(data, v)
}
