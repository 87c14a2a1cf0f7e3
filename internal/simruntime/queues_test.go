package simruntime_test

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	sim "github.com/plegd/plegd/internal/simruntime"
)

// containerd#7318: each event goes to one subscriber, in turn; 1000 wait for
// the first one and the newest are dropped.
func TestContainerd17SubscribersCompete(t *testing.T) {
	inBubble(t, sim.Config{Profile: sim.Containerd17, SubscriberBuffer: 3}, func(t *testing.T, rt *sim.Runtime, c client, sub func() *reader) {
		_, err := must(c.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{})).Recv()
		wantCode(t, err, codes.Unimplemented)
		inject(rt, "1", "2", "3", "4")
		time.Sleep(24 * time.Hour) // they don't expire
		one := sub()
		if got := one.read(); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("kept %v, want the oldest 3", got)
		}
		if st := rt.EventStats(); st.Overflowed != 1 || st.Replayed != 3 || st.Waiting != 0 {
			t.Errorf("stats: %+v", st)
		}
		two := sub()
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			inject(rt, id)
			synctest.Wait()
		}
		if a, b := one.read(), two.read(); !slices.Equal(a, []string{"a", "c", "e"}) || !slices.Equal(b, []string{"b", "d"}) {
			t.Errorf("one got %v, two got %v", a, b)
		}
		// One that has gone is noticed at the next send, and that event is lost.
		two.cancel()
		synctest.Wait()
		for _, id := range []string{"f", "g", "h"} {
			inject(rt, id)
			synctest.Wait()
		}
		if got := one.read(); !slices.Equal(got, []string{"g", "h"}) {
			t.Errorf("got %v, want all but the first", got)
		}
		// One that doesn't read leaves the others more.
		stuck, err := c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
		check(t, err)
		synctest.Wait()
		for i := range 40 {
			rt.InjectEvent(big(i))
			synctest.Wait()
		}
		if got := len(one.read()); got < 30 || got == 40 {
			t.Errorf("the one that reads got %d of 40", got)
		}
		_ = stuck
	})
}

// Measured: on CRI-O a subscriber that stops reading stalls all; events queue up
// to 1000, then the newest are dropped, and calls go on.
func TestCRIOSlowSubscriberStallsTheOthers(t *testing.T) {
	inBubble(t, sim.Config{Profile: sim.CRIO, SubscriberBuffer: 5, StallProducers: true}, func(t *testing.T, rt *sim.Runtime, c client, sub func() *reader) {
		r := sub()
		stuck, err := c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
		check(t, err)
		synctest.Wait()
		for i := range 40 {
			rt.InjectEvent(big(i)) // which never blocks
			synctest.Wait()
		}
		reached := r.read()
		if len(reached) == 0 || len(reached) > 20 {
			t.Errorf("the other one got %d of 40", len(reached))
		}
		must(c.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: podSpec.Config()}))
		late := sub() // joins at once
		lost := int(rt.EventStats().Overflowed)
		for range 41 - lost {
			must(stuck.Recv())
		}
		rest := r.read()
		if len(reached)+len(rest) != 41-lost || lost == 0 {
			t.Errorf("got %d and %d of 41, %d lost", len(reached), len(rest), lost)
		}
		for i, id := range slices.Concat(reached, rest) {
			if id != strconv.Itoa(i) {
				t.Errorf("event %d is %s: not the newest were dropped", i, id)
			}
		}
		inject(rt, "z")
		if got := late.read(); got[len(got)-1] != "z" {
			t.Errorf("the late one got %v", got)
		}
	})
}

// Measured: CRI-O keeps events for its first subscriber ever, and later throws
// away what nobody listens to.
func TestCRIOKeepsEventsForTheFirstSubscriberOnly(t *testing.T) {
	inBubble(t, sim.Config{Profile: sim.CRIO, SubscriberBuffer: 3}, func(t *testing.T, rt *sim.Runtime, _ client, sub func() *reader) {
		inject(rt, "1", "2", "3", "4")
		time.Sleep(time.Hour)
		if st := rt.EventStats(); st.Waiting != 3 || st.Overflowed != 1 {
			t.Errorf("stats: %+v", st)
		}
		first := sub()
		if got := first.read(); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("kept %v, want 1 2 3", got)
		}
		rt.EndStreams(codes.Unavailable)
		inject(rt, "lost", "too")
		second := sub()
		inject(rt, "heard")
		if got := second.read(); !slices.Equal(got, []string{"heard"}) {
			t.Errorf("got %v, want heard", got)
		}
		if st := rt.EventStats(); st.Unheard != 2 {
			t.Errorf("stats: %+v", st)
		}
		rt.Restart()
		inject(rt, "after the restart")
		if st := rt.EventStats(); st.Waiting != 1 {
			t.Errorf("stats: %+v", st)
		}
	})
}
