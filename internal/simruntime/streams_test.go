package simruntime_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	sim "github.com/plegd/plegd/internal/simruntime"
)

func TestEverySubscriberGetsEverything(t *testing.T) {
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, _ runtimeapi.RuntimeServiceClient, sub func() *reader) {
		one := sub()
		inject(rt, "a")
		two := sub()
		inject(rt, "b")
		if a, b := one.read(), two.read(); !slices.Equal(a, []string{"a", "b"}) || !slices.Equal(b, []string{"b"}) {
			t.Errorf("one got %v, two got %v", a, b)
		}
	})
}

func TestReplayWhenNobodyListened(t *testing.T) {
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, _ runtimeapi.RuntimeServiceClient, sub func() *reader) {
		inject(rt, "old")
		time.Sleep(4 * time.Minute)
		_, app := pod(t, rt, "u1")
		check(t, rt.ExitContainer(app, 1, ""))
		time.Sleep(2 * time.Minute)
		check(t, rt.RemoveContainer(app))
		first := sub()
		var got []runtimeapi.ContainerEventType
		for range 6 {
			ev := first.next()
			got = append(got, ev.ContainerEventType)
			// The payload is as old as the event.
			if ev.ContainerEventType == started && ev.ContainerId == app && ev.ContainersStatuses[0].State != runtimeapi.ContainerState_CONTAINER_RUNNING {
				t.Errorf("replayed payload: %v", ev)
			}
		}
		if want := []runtimeapi.ContainerEventType{created, started, created, started, stopped, deleted}; !slices.Equal(got, want) {
			t.Errorf("replayed %v, want %v", got, want)
		}
		if st := rt.EventStats(); st.Expired != 1 || st.Replayed != 6 || st.Waiting != 0 {
			t.Errorf("stats: %+v", st)
		}
		if again := sub().read(); again != nil {
			t.Errorf("replayed twice: %v", again)
		}
	})
}

func TestReplayCanBeOff(t *testing.T) {
	inBubble(t, sim.Config{ReplayWindow: -1}, func(t *testing.T, rt *sim.Runtime, _ runtimeapi.RuntimeServiceClient, sub func() *reader) {
		inject(rt, "a")
		if got := sub().read(); got != nil {
			t.Errorf("replayed %v", got)
		}
	})
}

// TestClientGoneUnnoticed: the first event after a client left is lost with it,
// the ones behind it wait for the next client.
func TestClientGoneUnnoticed(t *testing.T) {
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, _ runtimeapi.RuntimeServiceClient, sub func() *reader) {
		r := sub()
		r.cancel()
		synctest.Wait()
		if n := rt.EventStats().Subscribers; n != 1 {
			t.Errorf("%d subscribers, the gone one should still count", n)
		}
		inject(rt, "lost")
		synctest.Wait()
		inject(rt, "kept")
		if got := sub().read(); !slices.Equal(got, []string{"kept"}) {
			t.Errorf("got %v, want kept", got)
		}
	})
}

// stopReading opens a stream that is never read, so that events pile up in the
// runtime once the transport's windows are full.
func stopReading(t *testing.T, rt *sim.Runtime, c runtimeapi.RuntimeServiceClient) {
	t.Helper()
	if _, err := c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{}); err != nil {
		t.Fatal(err)
	}
	waitSubscribers(t, rt, 1)
}

// big is an event that fills a flow-control window (64 KiB).
func big(i int) *sim.Event {
	return &sim.Event{ContainerId: strconv.Itoa(i), PodSandboxStatus: &runtimeapi.PodSandboxStatus{
		Annotations: map[string]string{"padding": string(make([]byte, 64<<10))},
	}}
}

func TestSlowSubscriberLosesByDefault(t *testing.T) {
	inBubble(t, sim.Config{SubscriberBuffer: 5}, func(t *testing.T, rt *sim.Runtime, c runtimeapi.RuntimeServiceClient, sub func() *reader) {
		stopReading(t, rt, c)
		r := sub()
		for i := range 20 {
			rt.InjectEvent(big(i))
			synctest.Wait()
		}
		if got := len(r.read()); got != 20 {
			t.Errorf("the other one got %d of 20", got)
		}
		if st := rt.EventStats(); st.Overflowed == 0 {
			t.Errorf("stats: %+v", st)
		}
	})
}

// TestSlowSubscriberStallsProducers is what a containerd 2.x does to the whole
// node when one agent stops reading.
func TestSlowSubscriberStallsProducers(t *testing.T) {
	inBubble(t, sim.Config{SubscriberBuffer: 5, StallProducers: true}, func(t *testing.T, rt *sim.Runtime, c runtimeapi.RuntimeServiceClient, sub func() *reader) {
		r := sub()
		stuck, err := c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
		check(t, err)
		synctest.Wait()
		done := make(chan int, 1)
		go func() {
			for i := range 40 {
				rt.InjectEvent(big(i))
			}
			done <- 40
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("producers weren't stalled")
		default:
		}
		reached := len(r.read())
		late := sub()
		if n := rt.EventStats().Subscribers; n != 2 {
			t.Errorf("a new subscriber joined a stalled queue: %d", n)
		}
		// Lists, statuses and exits go on; what sends events itself hangs.
		must(c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}))
		rt.PutContainer("nowhere", &runtimeapi.ContainerStatus{Id: "x", State: runtimeapi.ContainerState_CONTAINER_RUNNING})
		check(t, rt.ExitContainer("x", 1, ""))
		hung, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err = c.RunPodSandbox(hung, &runtimeapi.RunPodSandboxRequest{Config: podSpec.Config()})
		cancel()
		wantCode(t, err, codes.DeadlineExceeded)
		for range 43 {
			must(stuck.Recv())
		}
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Fatal("producers are still stalled")
		}
		if rest := len(r.read()); reached >= 40 || reached+rest != 43 {
			t.Errorf("the other one got %d and then %d of 43", reached, rest)
		}
		inject(rt, "z")
		if got := late.read(); got[len(got)-1] != "z" {
			t.Errorf("the late one got %v", got)
		}
	})
}

func TestStalledProducersAreLetGoByARestart(t *testing.T) {
	inBubble(t, sim.Config{SubscriberBuffer: 1, StallProducers: true}, func(t *testing.T, rt *sim.Runtime, c runtimeapi.RuntimeServiceClient, _ func() *reader) {
		stopReading(t, rt, c)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 40 {
				rt.InjectEvent(big(i))
			}
		}()
		synctest.Wait()
		rt.Restart()
		<-done
	})
}

func TestRawStates(t *testing.T) {
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, c runtimeapi.RuntimeServiceClient, sub func() *reader) {
		r := sub()
		sandbox, app := pod(t, rt, "u1")
		r.read()
		check(t, rt.SetContainerState(app, 7))
		check(t, rt.SetSandboxState(sandbox, 5))
		if st := must(c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: app})).Status; st.State != 7 {
			t.Errorf("status: %v", st)
		}
		if sb := must(c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})).Items[0]; sb.State != 5 {
			t.Errorf("list: %v", sb)
		}
		check(t, rt.EditContainer(app, func(s *runtimeapi.ContainerStatus) { s.Reason = sim.ReasonOOMKilled }))
		if err := rt.EditContainer(app, func(s *runtimeapi.ContainerStatus) { s.Id = "other" }); err == nil {
			t.Error("an edit may not change the id")
		}
		rt.PutSandbox(&runtimeapi.PodSandboxStatus{Id: "bare"})
		rt.PutContainer("nowhere", &runtimeapi.ContainerStatus{Id: "orphan", State: runtimeapi.ContainerState_CONTAINER_RUNNING})
		if got := r.read(); got != nil {
			t.Errorf("raw changes made events: %v", got)
		}
		// An orphan's event has no sandbox status, but its containers.
		check(t, rt.ExitContainer("orphan", 9, ""))
		if ev := r.next(); ev.PodSandboxStatus != nil || len(ev.ContainersStatuses) != 1 {
			t.Errorf("orphan's event: %v", ev)
		}
		check(t, rt.DropSandbox(sandbox))
		check(t, rt.DropContainer("orphan"))
		rt.InjectEvent(&sim.Event{ContainerEventType: 9})
		if ev := r.next(); ev.ContainerEventType != 9 || ev.ContainerId != "" {
			t.Errorf("injected: %v", ev)
		}
		truth := rt.Truth()
		if len(truth.Sandboxes) != 1 || len(truth.Containers) != 1 || truth.Containers[0].SandboxID != sandbox {
			t.Errorf("truth: %+v", truth)
		}
		for _, tr := range rt.History()[4:] {
			if tr.Step != sim.Exited && !tr.Silent {
				t.Errorf("not silent: %+v", tr)
			}
		}
	})
}
