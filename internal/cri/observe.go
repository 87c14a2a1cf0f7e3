package cri

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/plegd/plegd/timestamps"
)

// Observer is told of every call, for metrics. Each CallStarted is followed by
// one CallDone; the difference is what is in flight. The methods are called by
// many goroutines at once and must not block.
type Observer interface {
	// CallStarted says that a call of this method, such as ListContainers, is
	// about to be sent.
	CallStarted(method string)
	// CallDone says how it ended and how long it took. A stream is one call.
	CallDone(method string, code codes.Code, took time.Duration)
}

// watcher counts calls and sees connections being made. It serves as gRPC's
// interceptors and as its stats handler.
type watcher struct {
	clock     timestamps.Clock
	observer  Observer
	connected func()
}

// started tells the observer and returns how to tell it of the end, which may
// be called more than once.
func (w *watcher) started(fullMethod string) (done func(error)) {
	if w.observer == nil {
		return func(error) {}
	}
	method := fullMethod[strings.LastIndexByte(fullMethod, '/')+1:]
	start := w.clock.Mono()
	w.observer.CallStarted(method)
	var once sync.Once
	return func(err error) {
		once.Do(func() { w.observer.CallDone(method, status.Code(err), w.clock.Mono()-start) })
	}
}

func (w *watcher) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	done := w.started(method)
	err := invoke(ctx, method, req, reply, cc, opts...)
	done(err)
	return err
}

func (w *watcher) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	done := w.started(method)
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		done(err)
		return nil, err
	}
	return &watchedStream{ClientStream: s, done: done}, nil
}

// watchedStream reports its end. All of plegd's streams are read until then.
type watchedStream struct {
	grpc.ClientStream
	done func(error)
}

// SendMsg implements [grpc.ClientStream].
func (s *watchedStream) SendMsg(m any) error {
	err := s.ClientStream.SendMsg(m)
	if err != nil {
		s.done(err) // gRPC has ended the stream, and whoever opened it gives up
	}
	return err
}

// RecvMsg implements [grpc.ClientStream].
func (s *watchedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case errors.Is(err, io.EOF):
		s.done(nil)
	case err != nil:
		s.done(err)
	}
	return err
}

// HandleConn implements [stats.Handler]: gRPC calls it when a connection was
// made, before calls use it.
func (w *watcher) HandleConn(_ context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnBegin); ok {
		w.connected()
	}
}

// TagConn implements [stats.Handler].
func (w *watcher) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// TagRPC implements [stats.Handler].
func (w *watcher) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements [stats.Handler].
func (w *watcher) HandleRPC(context.Context, stats.RPCStats) {}
