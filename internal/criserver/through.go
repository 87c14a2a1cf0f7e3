package criserver

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const (
	// freshFor is how long an answer of the runtime serves others. crictl stats
	// takes two samples a second apart, which must not be the same.
	freshFor = 500 * time.Millisecond
	// maxFlights are the calls to the runtime at a time.
	maxFlights = 16
	// maxWaiting are the requests that wait for an answer of the runtime. Each has up to
	// maxRequest in memory.
	maxWaiting = 256
	// maxKept and maxKeptBytes bound the answers that are kept.
	maxKept, maxKeptBytes = 256, 8 << 20
	// maxStreamed bounds the parts of one streamed answer together, in bytes.
	maxStreamed = 64 << 20
)

var errManyWait = status.Errorf(codes.ResourceExhausted, "plegd: %d requests wait for the runtime, more are not allowed; try again later", maxWaiting)

// through asks the runtime on behalf of clients: requests that are alike share
// one call and, for freshFor, its answer. What is else served from the cache is
// never older than the request: those share a call only until it begins. Errors
// are shared by those who wait for them and not kept.
type through struct {
	ctx     context.Context // calls don't end with the client that caused them
	timeout time.Duration
	tasks   *sync.WaitGroup
	slots   *semaphore.Weighted

	mu      sync.Mutex
	flights map[string]*flight // those that may be joined
	waiting int                // requests
	kept    map[string]answer
	bytes   int
}

// answer is one that is kept.
type answer struct {
	value any
	size  int
	at    time.Time
}

func newThrough(ctx context.Context, timeout time.Duration, tasks *sync.WaitGroup) *through {
	return &through{ctx: ctx, timeout: timeout, tasks: tasks, slots: semaphore.NewWeighted(maxFlights), flights: map[string]*flight{}, kept: map[string]answer{}}
}

// ask returns the answer to a request, which key tells from others. call makes
// the call and returns the answer with its size in bytes; the answer is shared,
// so nobody may change it. The answer to a method that is passed may be up to
// freshFor old, or that of a call that was under way. That of one from the cache,
// which comes here when the cache doesn't do, is of a call that began after the
// request, and is not kept: else a client that has seen a change could be told of
// the time before it.
func ask[T any](ctx context.Context, t *through, w way, key string, call func(context.Context) (T, int, error)) (T, error) {
	var zero T
	if w == passed {
		if v, ok := t.get(key); ok {
			return v.(T), nil
		}
	}
	f, err := t.join(w, key, func(ctx context.Context) (any, int, error) { return call(ctx) })
	if err != nil {
		return zero, err
	}
	defer t.leave(key, f)
	select {
	case <-f.done:
		if f.err != nil {
			return zero, f.err
		}
		return f.value.(T), nil
	case <-ctx.Done():
		return zero, status.FromContextError(ctx.Err()).Err()
	}
}

// flight is a call to the runtime, for all who wait for its answer.
type flight struct {
	// What follows is the through's.
	waiters int
	begun   bool
	callOff context.CancelFunc

	done  chan struct{} // closed when the rest is there
	value any
	err   error
}

// join has a request wait for a call that is alike, or for one of its own. There is a
// leave for each.
func (t *through) join(w way, key string, call func(context.Context) (any, int, error)) (*flight, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == maxWaiting {
		return nil, errManyWait
	}
	t.waiting++
	f := t.flights[key]
	if f == nil {
		ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
		f = &flight{callOff: cancel, done: make(chan struct{})}
		t.flights[key] = f
		t.tasks.Go(func() {
			defer cancel()
			f.value, f.err = t.fly(ctx, w, key, f, call)
			t.mu.Lock()
			t.part(key, f)
			t.mu.Unlock()
			close(f.done)
		})
	}
	f.waiters++
	return f, nil
}

// leave has a request wait no longer. A call that has not begun is called off when
// nobody waits for it any more: what clients take back while the runtime hangs would
// pile up. One that has begun goes on, so that who asks and takes it back, again and
// again, has the runtime do no more than others.
func (t *through) leave(key string, f *flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting--
	f.waiters--
	if f.waiters == 0 && !f.begun {
		t.part(key, f)
		f.callOff()
	}
}

// part has nobody join a call any more; the caller holds the lock.
func (t *through) part(key string, f *flight) {
	if t.flights[key] == f {
		delete(t.flights, key)
	}
}

// begin says that a call begins.
func (t *through) begin(w way, key string, f *flight) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.begun = true
	if w != passed {
		t.part(key, f) // whoever comes from now on makes a call of their own
	}
}

// fly makes a call when there is a place for it, and keeps its answer.
func (t *through) fly(ctx context.Context, w way, key string, f *flight, call func(context.Context) (any, int, error)) (v any, err error) {
	size := 0
	if err = status.FromContextError(t.slots.Acquire(ctx, 1)).Err(); err == nil {
		defer t.slots.Release(1)
		t.begin(w, key, f)
		v, size, err = call(ctx)
	}
	switch {
	case err == nil && w == passed:
		t.keep(key, v, size)
	case err == nil:
	case t.ctx.Err() != nil:
		err = errStopping
	case status.Code(err) == codes.Unavailable:
		err = unavailable(err.Error()) // plain words; gRPC's would be of a connection that the client doesn't have
	}
	return v, err
}

// get returns an answer that is kept and fresh.
func (t *through) get(key string) (any, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep()
	a, ok := t.kept[key]
	return a.value, ok
}

func (t *through) keep(key string, v any, size int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep()
	size += len(key)
	if size > maxKeptBytes {
		return
	}
	t.drop(key)
	for len(t.kept) >= maxKept || t.bytes+size > maxKeptBytes {
		t.dropOldest()
	}
	t.kept[key] = answer{v, size, time.Now()}
	t.bytes += size
}

// sweep drops what is not fresh any more; the caller holds the lock.
func (t *through) sweep() {
	for key, a := range t.kept {
		if time.Since(a.at) >= freshFor {
			t.drop(key)
		}
	}
}

func (t *through) dropOldest() {
	var oldest string
	for key, a := range t.kept {
		if oldest == "" || a.at.Before(t.kept[oldest].at) {
			oldest = key
		}
	}
	t.drop(oldest)
}

func (t *through) drop(key string) {
	t.bytes -= t.kept[key].size
	delete(t.kept, key)
}

// keyOf tells requests apart. Deterministic encoding makes those that say the
// same the same.
func keyOf(method string, req proto.Message) (string, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		return "", status.Errorf(codes.InvalidArgument, "%s: %v", method, err)
	}
	return method + "\x00" + string(b), nil
}

// pass passes a call through.
func pass[Resp any, Message interface {
	*Resp
	proto.Message
}](ctx context.Context, s *Server, method string, req proto.Message) (*Resp, error) {
	return passEdited[Resp, Message](ctx, s, method, req, func(*Resp) {})
}

// passEdited passes a call through, and has its answer edited before anybody sees
// it.
func passEdited[Resp any, Message interface {
	*Resp
	proto.Message
}](ctx context.Context, s *Server, method string, req proto.Message, edit func(*Resp)) (*Resp, error) {
	client, err := s.runtime()
	if err != nil {
		return nil, err
	}
	key, err := keyOf(method, req)
	if err != nil {
		return nil, err
	}
	return ask(ctx, s.through, served[method], key, func(ctx context.Context) (*Resp, int, error) {
		resp := new(Resp)
		err := client.Conn().Invoke(ctx, method, req, resp)
		edit(resp)
		return resp, proto.Size(Message(resp)), err
	})
}

// passStream passes a call through that is answered in parts.
func passStream[Resp any, Message interface {
	*Resp
	proto.Message
}](s *Server, method string, req proto.Message, out grpc.ServerStreamingServer[Resp]) error {
	client, err := s.runtime()
	if err != nil {
		return err
	}
	key, err := keyOf(method, req)
	if err != nil {
		return err
	}
	parts, err := ask(out.Context(), s.through, served[method], key, func(ctx context.Context) ([]*Resp, int, error) {
		return drain[Resp, Message](ctx, client.Conn(), method, req, maxStreamed)
	})
	if err != nil {
		return err
	}
	sizes := make([]int, len(parts))
	for i, p := range parts {
		sizes[i] = proto.Size(Message(p))
	}
	return sendParts(s, slices.Clone(parts), sizes, out.Send) // a clone, since others may have the same answer
}

// drain reads all parts of an answer, which may have so many bytes together.
func drain[Resp any, Message interface {
	*Resp
	proto.Message
}](ctx context.Context, conn grpc.ClientConnInterface, method string, req proto.Message, limit int) (parts []*Resp, size int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that is too large
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return nil, 0, err
	}
	if err := stream.SendMsg(req); err != nil && !errors.Is(err, io.EOF) { // then RecvMsg says why
		return nil, 0, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, 0, err
	}
	for {
		part := new(Resp)
		switch err := stream.RecvMsg(part); {
		case errors.Is(err, io.EOF):
			return parts, size, nil
		case err != nil:
			return nil, 0, err
		}
		if size += proto.Size(Message(part)); size > limit {
			return nil, 0, status.Errorf(codes.ResourceExhausted, "plegd: the runtime's answer is larger than %d bytes", limit)
		}
		parts = append(parts, part)
	}
}
