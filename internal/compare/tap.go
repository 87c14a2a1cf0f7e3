package compare

import (
	"context"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/recording"
)

// tap sees what goes over one connection of a mode. gRPC calls it where it
// sends and receives, so nothing here waits.
type tap struct{ r *Recorder }

// call is one call under way. gRPC has one goroutine at a time for a call's
// payloads, and the end comes last.
type call struct {
	method string
	about  string // see recording.About
	got    []proto.Message
}

type callKey struct{}

// TagRPC implements [stats.Handler].
func (t *tap) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	method := info.FullMethodName[strings.LastIndexByte(info.FullMethodName, '/')+1:]
	return context.WithValue(ctx, callKey{}, &call{method: method})
}

// HandleRPC implements [stats.Handler].
func (t *tap) HandleRPC(ctx context.Context, st stats.RPCStats) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	switch st := st.(type) {
	case *stats.Begin:
		t.r.count(c.method, Calls{Calls: 1})
	case *stats.OutPayload:
		t.r.count(c.method, Calls{Sent: int64(st.WireLength)})
		c.about = recording.About(st.Payload)
	case *stats.InPayload:
		t.r.count(c.method, Calls{Received: int64(st.WireLength)})
		if ev := cri.EventOf(st.Payload); ev != nil {
			t.r.heard(ev)
		} else if m, ok := st.Payload.(proto.Message); ok {
			c.got = append(c.got, m)
		}
	case *stats.End:
		t.ended(c, st.Error)
	}
}

// ended takes the end of a call. A list is one only when it is complete.
func (t *tap) ended(c *call, err error) {
	code := status.Code(err)
	switch {
	case err == nil || errors.Is(err, io.EOF):
		if c.method == recording.MethodEvents {
			t.r.failed(c, "the stream ended without an error")
			return
		}
		t.r.answered(c)
	case code == codes.Canceled, errors.Is(err, context.Canceled): // by ourselves
	case code == codes.NotFound && strings.HasSuffix(c.method, "Status"):
		t.r.notFound(c)
	default:
		t.r.count(c.method, Calls{Failed: 1})
		t.r.failed(c, err.Error())
	}
}

// TagConn implements [stats.Handler].
func (t *tap) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (t *tap) HandleConn(context.Context, stats.ConnStats) {}

// count adds to the counts of a method.
func (r *Recorder) count(method string, c Calls) {
	r.mu.Lock()
	defer r.mu.Unlock()
	have := r.calls[method]
	have.Calls += c.Calls
	have.Failed += c.Failed
	have.Sent += c.Sent
	have.Received += c.Received
	r.calls[method] = have
}
