// Package unsent bounds what a gRPC server has to say and its clients have not
// taken. gRPC itself doesn't: the answer to a call of one answer is queued as a
// whole when its handler returns, and stays there until the client's flow control
// lets it go, which a client that doesn't read never does.
package unsent

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
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
	bytes *semaphore.Weighted
	stall time.Duration
}

// New returns a budget. An answer that is not taken within stall is cut.
func New(most int64, stall time.Duration) *Budget {
	return &Budget{most: most, bytes: semaphore.NewWeighted(most), stall: stall}
}

// Take takes room for so many bytes, until give is called, if there is. What is
// larger than all there may be takes all.
func (b *Budget) Take(n int) (give func(), ok bool) {
	share := min(int64(n), b.most)
	if !b.bytes.TryAcquire(share) {
		return nil, false
	}
	return sync.OnceFunc(func() { b.bytes.Release(share) }), true
}

// Parts have room for several messages that are sent one after the other.
type Parts struct{ gives []func() }

// TakeParts takes room for messages of these sizes, if there is room for all. Of
// what is larger than all there may be the last ones take none.
func (b *Budget) TakeParts(sizes []int) (p Parts, ok bool) {
	left := int(b.most)
	for _, size := range sizes {
		share := min(left, size)
		left -= share
		give, ok := b.Take(share)
		if !ok {
			p.drop()
			return Parts{}, false
		}
		p.gives = append(p.gives, give)
	}
	return p, true
}

// Send has the messages sent one after the other, until one fails. The room of each
// is given back just before, since from then on it counts as what is sent does (see
// Hold); that of the others in the end.
func (p Parts) Send(send func(i int) error) error {
	defer p.drop()
	for i, give := range p.gives {
		give()
		if err := send(i); err != nil {
			return err
		}
	}
	return nil
}

func (p Parts) drop() {
	for _, give := range p.gives {
		give()
	}
}

// Answer is a message that has room until it is taken, or its call or connection
// ends. It is to be sent at once, with [Codec].
type Answer struct {
	message proto.Message
	size    int
	ended   func()
}

// Hold takes room for a message, and reports false if there is none. It returns
// what is to be sent: small ones are sent as they are, since gRPC bounds how many
// there are. If the message is not taken in time, cut is called, to end the
// connection.
func (b *Budget) Hold(m proto.Message, conn *crowd.Guest, cut func()) (send any, ok bool) {
	size := proto.Size(m)
	if mem.IsBelowBufferPoolingThreshold(size) {
		return m, true
	}
	give, ok := b.Take(size)
	if !ok {
		return nil, false
	}
	late := time.AfterFunc(b.stall, cut)
	a := &Answer{message: m, size: size}
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
