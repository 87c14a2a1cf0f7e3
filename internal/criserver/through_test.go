package criserver

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// Requests that are alike share one call while it is in flight, and its answer
// for a moment.
func TestPassedCallsAreShared(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.quiet()
	slow := simtest.Rule(t, n.rt, simruntime.Rule{Method: "Status", Hang: true})
	var clients sync.WaitGroup
	ask := func() {
		clients.Go(func() {
			if r, err := n.cri.Status(t.Context(), &runtimeapi.StatusRequest{}); err != nil || len(r.GetStatus().GetConditions()) != 2 {
				t.Error(r, err)
			}
		})
	}
	for range 20 {
		ask()
	}
	// Who gives up takes the call from nobody.
	ctx, cancel := context.WithCancel(t.Context())
	clients.Go(func() {
		if _, err := n.cri.Status(ctx, &runtimeapi.StatusRequest{}); status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	})
	n.must(n.rt.WaitCalls(t.Context(), "Status", func(s simruntime.CallStats) bool { return s.InFlight > 0 }))
	cancel()
	slow.Remove()
	clients.Wait()
	// A client that came later than freshFor may have made one more.
	if calls := n.rt.CallStats("Status").Started; calls > 3 {
		t.Errorf("%d calls for 21 clients", calls)
	}
	// Another request is another call.
	before := n.rt.CallStats("Status").Started
	_, err := n.cri.Status(t.Context(), &runtimeapi.StatusRequest{Verbose: true})
	n.must(err)
	if calls := n.rt.CallStats("Status").Started; calls != before+1 {
		t.Errorf("%d calls", calls-before)
	}
}

func newTestThrough(t *testing.T) (x *through, end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	x = newThrough(ctx, time.Minute, new(sync.WaitGroup))
	return x, func() {
		cancel()
		x.tasks.Wait()
	}
}

// kept returns an answer that is kept.
func kept(x *through, key string) (any, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.get(key)
}

// Of many who ask at the same time one makes the call, also if its answer comes while
// another one is about to ask.
func TestOneCallForManyWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, end := newTestThrough(t)
		defer end()
		for round := range 500 {
			var calls atomic.Int32
			var clients sync.WaitGroup
			for range 8 {
				clients.Go(func() {
					_, err := ask(t.Context(), x, passed, fmt.Sprint(round), func(context.Context) (int32, int, error) { return calls.Add(1), 10, nil })
					if err != nil {
						t.Error(err)
					}
				})
			}
			clients.Wait()
			if n := calls.Load(); n != 1 {
				t.Fatalf("%d calls in round %d", n, round)
			}
		}
	})
}

func TestAnswersAreFreshForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, end := newTestThrough(t)
		defer end()
		if freshFor >= time.Second {
			t.Errorf("answers are kept for %v: both samples of crictl stats would be the same", freshFor)
		}
		calls := 0
		get := func(key string) int {
			v, err := ask(t.Context(), x, passed, key, func(context.Context) (int, int, error) { calls++; return calls, 10, nil })
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		if a, b, c := get("a"), get("a"), get("b"); a != 1 || b != 1 || c != 2 {
			t.Error(a, b, c)
		}
		time.Sleep(freshFor - time.Nanosecond)
		if v := get("a"); v != 1 {
			t.Errorf("call %d after less than %v", v, freshFor)
		}
		time.Sleep(time.Nanosecond)
		if v := get("a"); v != 3 {
			t.Errorf("call %d after %v", v, freshFor)
		}
		// Errors are not kept.
		bad := errors.New("bad")
		for range 2 {
			if _, err := ask(t.Context(), x, passed, "e", func(context.Context) (int, int, error) { calls++; return 0, 0, bad }); !errors.Is(err, bad) {
				t.Error(err)
			}
		}
		if calls != 5 {
			t.Errorf("%d calls", calls)
		}
	})
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, end := newTestThrough(t)
		defer end()
		check := func() {
			t.Helper()
			sum := 0
			for _, a := range x.kept {
				sum += a.size
			}
			if len(x.kept) > maxKept || x.bytes > maxKeptBytes || sum != x.bytes {
				t.Fatalf("%d answers of %d bytes, counted as %d", len(x.kept), sum, x.bytes)
			}
		}
		for i := range 3 * maxKept {
			x.keep(fmt.Sprint("many", i), i, 1)
			check()
		}
		if len(x.kept) != maxKept {
			t.Errorf("%d are kept", len(x.kept))
		}
		for i := range 20 {
			x.keep(fmt.Sprint("large", i%15), i, maxKeptBytes/9)
			check()
		}
		x.keep("too large", 1, maxKeptBytes)
		check()
		if _, ok := kept(x, "too large"); ok {
			t.Error("is kept")
		}
		if _, ok := kept(x, "large4"); !ok {
			t.Error("the newest is dropped first")
		}
		time.Sleep(freshFor)
		if _, ok := kept(x, "large4"); ok || len(x.kept) != 0 || x.bytes != 0 {
			t.Errorf("%d are left with %d bytes", len(x.kept), x.bytes)
		}
	})
}

// A runtime that hangs has at most maxFlights calls of this endpoint, and each
// ends in time.
func TestFlightsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, end := newTestThrough(t)
		defer end()
		var clients sync.WaitGroup
		var mu sync.Mutex
		flying, most := 0, 0
		for i := range 5 * maxFlights {
			clients.Go(func() {
				_, err := ask(t.Context(), x, passed, fmt.Sprint(i), func(ctx context.Context) (int, int, error) {
					mu.Lock()
					flying++
					most = max(most, flying)
					mu.Unlock()
					<-ctx.Done()
					mu.Lock()
					defer mu.Unlock()
					flying--
					return 0, 0, status.FromContextError(ctx.Err()).Err()
				})
				if status.Code(err) != codes.DeadlineExceeded {
					t.Error(err)
				}
			})
		}
		clients.Wait()
		if most != maxFlights {
			t.Errorf("%d calls at once", most)
		}
	})
}

// Requests that are taken back while the runtime hangs leave nothing behind; who waits
// for the same call goes on to wait, and a call that has begun goes on.
func TestTakenBackRequestsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, end := newTestThrough(t)
		defer end()
		var began, calledOff atomic.Int32
		release := make(chan struct{})
		call := func(ctx context.Context) (int, int, error) {
			call := int(began.Add(1))
			select {
			case <-release:
			case <-ctx.Done():
				calledOff.Add(1)
			}
			return call, 1, status.FromContextError(ctx.Err()).Err()
		}
		ctx, takeBack := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		for i := range 10 * maxFlights {
			clients.Go(func() {
				if _, err := ask(ctx, x, passed, fmt.Sprint(i), call); status.Code(err) != codes.Canceled {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		patient := make(chan error, 1)
		go func() {
			_, err := ask(t.Context(), x, passed, fmt.Sprint(maxFlights), call)
			patient <- err
		}()
		synctest.Wait()
		takeBack()
		clients.Wait()
		synctest.Wait()
		if began.Load() != maxFlights || calledOff.Load() != 0 || len(x.flights) != maxFlights+1 || x.waiting != 1 {
			t.Errorf("%d calls began, %d were called off, %d are left, %d wait", began.Load(), calledOff.Load(), len(x.flights), x.waiting)
		}
		close(release)
		if err := <-patient; err != nil || calledOff.Load() != 0 {
			t.Errorf("who goes on to wait: %v; %d called off", err, calledOff.Load())
		}
		x.tasks.Wait() // those that were called off have ended too
		if began.Load() != maxFlights+1 || len(x.flights) != 0 {
			t.Errorf("%d calls, %d left", began.Load(), len(x.flights))
		}
	})
}

// Lists that are taken back while their items are being learnt leave nothing behind.
func TestTakenBackListsLeaveNothing(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.quiet()
	hangs := simtest.Rule(t, n.rt, simruntime.Rule{Method: "StreamPodSandboxes", Hang: true})
	n.pod("a")
	n.must(n.rt.WaitCalls(n.ctx(), "StreamPodSandboxes", func(s simruntime.CallStats) bool { return s.InFlight > 0 }))
	before := runtime.NumGoroutine()
	const lists = 500
	for range lists {
		ctx, takeBack := context.WithCancel(t.Context())
		takeBack()
		if err := n.server.learn(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if extra := runtime.NumGoroutine() - before; extra > lists/10 {
		t.Errorf("%d goroutines more", extra)
	}
	hangs.Remove()
	n.quiet()
}

// Only so many requests wait, and one more is told so.
func TestWaitingRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, end := newTestThrough(t)
		defer end()
		release := make(chan struct{})
		var clients sync.WaitGroup
		get := func(key string) error {
			_, err := ask(t.Context(), x, passed, key, func(context.Context) (int, int, error) { <-release; return 1, 1, nil })
			return err
		}
		for i := range maxWaiting {
			clients.Go(func() {
				if err := get(fmt.Sprint(i / 2)); err != nil { // two ask the same
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if err := get("one more"); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "256 requests wait") {
			t.Error(err)
		}
		close(release)
		clients.Wait()
		if err := get("later"); err != nil || x.waiting != 0 {
			t.Errorf("%v, %d wait", err, x.waiting)
		}
	})
}

// Who waits for a call when the endpoint stops is told that, and not that the
// call was called off.
func TestStopWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, end := newTestThrough(t)
		errs := make(chan error, maxFlights+1)
		for i := range maxFlights + 1 { // one of them waits for a place
			go func() {
				_, err := ask(context.WithoutCancel(t.Context()), x, passed, fmt.Sprint(i), func(ctx context.Context) (int, int, error) {
					<-ctx.Done()
					return 0, 0, status.FromContextError(ctx.Err()).Err()
				})
				errs <- err
			}()
		}
		synctest.Wait()
		end()
		for range maxFlights + 1 {
			if err := <-errs; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the agent stops") {
				t.Error(err)
			}
		}
	})
}

// A stream of answers is bounded too.
func TestStreamedAnswerIsBounded(t *testing.T) {
	n := start(t, simruntime.Config{StreamBatch: 1})
	_, err := n.rt.RunPodSandbox(simruntime.PodSpec{Name: "a", UID: "a"})
	n.must(err)
	sandbox := n.rt.Truth().Sandboxes[0].GetId()
	for i := range 6 {
		_, err := n.rt.CreateContainer(sandbox, simruntime.ContainerSpec{Name: fmt.Sprint(i)})
		n.must(err)
	}
	client, err := n.server.runtime()
	n.must(err)
	method := runtimeapi.RuntimeService_StreamContainers_FullMethodName
	ask := func(limit int) (int, int, error) {
		parts, size, err := drain[runtimeapi.StreamContainersResponse](t.Context(), client.Conn(), method, &runtimeapi.StreamContainersRequest{}, limit)
		return len(parts), size, err
	}
	parts, size, err := ask(maxStreamed)
	if err != nil || parts != 6 || size < 600 {
		t.Errorf("%d parts, %d bytes, %v", parts, size, err)
	}
	if _, got, err := ask(size); got != size || err != nil {
		t.Errorf("just enough: %d, %v", got, err)
	}
	if parts, _, err := ask(size - 1); parts != 0 || status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%d parts, %v", parts, err)
	}
}
