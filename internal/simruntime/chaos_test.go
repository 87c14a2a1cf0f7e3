package simruntime_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	sim "github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// TestChaos has clients, rules, restarts and two workloads at work at once on a
// real socket. It is for the race detector and for goleak: nothing may deadlock
// and nothing may be left behind.
func TestChaos(t *testing.T) {
	for name, p := range map[string]sim.Profile{
		"containerd 2.4": sim.Containerd24, "containerd 1.7": sim.Containerd17, "CRI-O": sim.CRIO,
	} {
		t.Run(name, func(t *testing.T) { chaos(t, p) })
	}
}

func chaos(t *testing.T, p sim.Profile) {
	rt, path := simtest.Start(t, sim.Config{Seed: 11, Profile: p, SubscriberBuffer: 50, StallProducers: true, StreamBatch: 3})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	// Not too short to have seen something, however slow the machine is.
	enough := time.AfterFunc(500*time.Millisecond, func() {
		for len(rt.History()) < 200 && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
	})
	defer enough.Stop()
	var wg sync.WaitGroup
	loop := func(f func(i int)) {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				f(i)
			}
		})
	}
	for seed := range uint64(2) {
		w := must(sim.NewWorkload(rt, sim.WorkloadConfig{Seed: seed, Rate: 2000}))
		wg.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for range 3 {
		c := runtimeapi.NewRuntimeServiceClient(simtest.Dial(t, path))
		loop(func(i int) {
			stream, err := c.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
			for n := 0; err == nil && n < 200; n++ {
				_, err = stream.Recv()
			}
			time.Sleep(time.Millisecond)
		})
		loop(func(i int) {
			call, done := context.WithTimeout(ctx, 20*time.Millisecond)
			defer done()
			list, err := c.ListContainers(call, &runtimeapi.ListContainersRequest{})
			if err != nil {
				time.Sleep(time.Millisecond)
				return
			}
			for _, item := range list.Containers {
				_, _ = c.ContainerStatus(call, &runtimeapi.ContainerStatusRequest{ContainerId: item.Id})
			}
		})
	}
	loop(func(i int) {
		rules := []sim.Rule{
			{Method: sim.MethodEvent, Probability: 0.1, Drop: true},
			{Method: sim.MethodEvent, Probability: 0.1, Delay: 3 * time.Millisecond},
			{Method: sim.MethodEvent, Probability: 0.3, Duplicate: 1, Hold: 3},
			{Method: sim.MethodEvent, Hang: true, Times: 5},
			{Method: "ContainerStatus", Probability: 0.2, Hang: true, IgnoreCancel: true},
			{Method: "ContainerStatus", Probability: 0.2, Code: codes.NotFound},
			{Method: "", Probability: 0.1, After: true, Delay: 2 * time.Millisecond},
		}
		h, err := rt.AddRule(rules[i%len(rules)])
		if err != nil {
			t.Error(err)
			return
		}
		time.Sleep(3 * time.Millisecond)
		h.Remove()
	})
	loop(func(i int) {
		time.Sleep(50 * time.Millisecond)
		switch i % 5 {
		case 0:
			rt.Restart()
		case 1:
			rt.EndStreams(codes.Internal)
		case 2:
			rt.Kill()
			rt.Up()
		case 3:
			rt.Freeze()
			time.Sleep(5 * time.Millisecond)
			rt.Thaw()
		default:
			_ = rt.EventStats()
			_ = rt.Truth()
		}
	})
	// What stalls the producers goes away with its client or with a restart, but
	// a client that has gone is only noticed when something is sent.
	wg.Go(func() {
		<-ctx.Done()
		rt.Restart()
	})
	wg.Wait()
	if n := len(rt.History()); n < 200 {
		t.Errorf("only %d transitions", n)
	}
}
