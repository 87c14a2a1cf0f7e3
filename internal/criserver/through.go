package criserver

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxFlights are the calls to the runtime at a time.
	maxFlights = 16
	// maxWaiting are the requests that wait for an answer of the runtime. Each has up to
	// maxRequest in memory.
	maxWaiting = 256
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
	kept, f, err := t.join(w, key, func(ctx context.Context) (any, int, error) { return call(ctx) })
	switch {
	case err != nil:
		return zero, err
	case f == nil:
		return kept.(T), nil
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
// leave for each. If an answer is kept that does, there is no call.
func (t *through) join(w way, key string, call func(context.Context) (any, int, error)) (kept any, f *flight, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w == passed {
		if a, ok := t.get(key); ok {
			return a, nil, nil
		}
	}
	if t.waiting == maxWaiting {
		return nil, nil, errManyWait
	}
	t.waiting++
	f = t.flights[key]
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
	return nil, f, nil
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
