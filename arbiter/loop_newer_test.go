package arbiter

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/plegd/plegd/store"
)

type podResult struct {
	pod Pod
	err error
}

// newer asks for a pod and returns where the answer will come.
func (d *driven) newer(ctx context.Context, key string) <-chan podResult {
	c := make(chan podResult, 1)
	go func() {
		pod, err := d.PodNewer(ctx, key)
		c <- podResult{pod, err}
	}()
	return c
}

// pending tells whether nothing has come yet.
func waits[T any](c <-chan T) bool {
	synctest.Wait()
	return len(c) == 0
}

// look answers a look at one pod, by a call that was sent at this moment.
func (d *driven) look(key string, sandboxes ...Item) *ListSeen {
	return &ListSeen{Scope: Scope{PodUID: key}, Sandboxes: sandboxes, SandboxCall: d.call(), ContainerCall: d.call()}
}

// TestLoopPodNewerWaitsForANewerCall: the answer comes from a call sent after
// the question, whatever is known already, and the question asks for it (T1).
func TestLoopPodNewerWaitsForANewerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync(ready("s1"))
		before := d.look("uid-s1", ready("s1")) // sent before the question, answered after
		c := d.newer(t.Context(), "uid-s1")
		if !waits(c) {
			t.Fatal("answered from what was known before")
		}
		asked := false
		for _, a := range d.seen.actions {
			asked = asked || a.Kind == ActPod && a.ID == "uid-s1"
		}
		if !asked {
			t.Errorf("the question asks for nothing: %+v", d.seen.actions)
		}
		d.Submit(before)
		if !waits(c) {
			t.Fatal("answered by a call that was sent before the question")
		}
		d.tell("s1") // an event proves nothing newer
		if !waits(c) {
			t.Fatal("answered by an event")
		}
		it := ready("s1")
		it.IPs = []string{"10.0.0.9"}
		d.Submit(d.look("uid-s1", it))
		synctest.Wait()
		r := <-c
		if r.err != nil || r.pod.Key != "uid-s1" || len(r.pod.Sandboxes) != 1 {
			t.Errorf("%+v", r)
		}
		d.stop()
	})
}

// TestLoopPodNewerEnds: waiting ends with the context, with the end of the
// loop, and with the knowledge that there is no such pod, known before or not.
func TestLoopPodNewerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync(ready("s1"))

		ctx, cancel := context.WithCancel(t.Context())
		c := d.newer(ctx, "uid-s1")
		synctest.Wait()
		cancel()
		if r := <-c; !errors.Is(r.err, context.Canceled) {
			t.Errorf("with its context: %v", r.err)
		}

		c = d.newer(t.Context(), "unknown")
		synctest.Wait()
		d.Submit(d.look("unknown"))
		if r := <-c; !errors.Is(r.err, ErrNoPod) {
			t.Errorf("for an unknown pod: %v", r.err)
		}

		c = d.newer(t.Context(), "uid-s1")
		synctest.Wait()
		d.sync()
		synctest.Wait()
		d.sync() // the second witness of the removal
		if r := <-c; r.err != nil && !errors.Is(r.err, ErrNoPod) {
			t.Errorf("for one that is being removed: %v", r.err)
		}
		c = d.newer(t.Context(), "uid-s1")
		synctest.Wait()
		d.sync()
		if r := <-c; !errors.Is(r.err, ErrNoPod) {
			t.Errorf("for one that was removed: %v", r.err)
		}

		c = d.newer(t.Context(), "uid-s2")
		synctest.Wait()
		d.stop()
		if r := <-c; !errors.Is(r.err, ErrStopped) {
			t.Errorf("at the end: %v", r.err)
		}
	})
}

// TestLoopWaitFresh: it waits for a full list sent later, no look will do.
func TestLoopWaitFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		c := make(chan error, 1)
		at := d.Counter().Next()
		go func() { c <- d.WaitFresh(t.Context(), at) }()
		d.Submit(d.look("u"))
		d.Submit(&ListFailed{At: d.moment(), Err: "x"})
		if !waits(c) {
			t.Fatal("a look at one pod, or a failed list, made everything fresh")
		}
		d.list()
		if err := <-c; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.WaitFresh(ctx, d.Counter().Next()); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		d.stop()
		if err := d.WaitFresh(t.Context(), d.Counter().Next()); !errors.Is(err, ErrStopped) {
			t.Error(err)
		}
	})
}

// TestLoopForgetsLooks: looks at pods that are not there don't add up, and who
// waits for one gets its answer all the same.
func TestLoopForgetsLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync()
		for i := range 3 * maxLooks {
			d.Submit(d.look(fmt.Sprint("nobody", i)))
			if i%100 == 0 {
				synctest.Wait()
			}
		}
		c := d.newer(t.Context(), "nobody")
		synctest.Wait()
		d.Submit(d.look("nobody"))
		if r := <-c; !errors.Is(r.err, ErrNoPod) {
			t.Errorf("%v", r.err)
		}
		d.stop()
		if n := len(d.view.fresh); n > maxLooks {
			t.Errorf("%d looks are remembered", n)
		}
	})
}

// TestLoopMarksWhatIsRestored: after a restart entities are marked until this
// run has seen them, and the mark goes with the commit of what saw them.
func TestLoopMarksWhatIsRestored(t *testing.T) {
	eachPlace(t, store.Retention{}, func(t *testing.T, p place) {
		d := drive(t, p.open(t))
		d.sync(ready("s1"), ready("s2"))
		d.stop()
		d = drive(t, p.open(t))
		for _, key := range []string{"uid-s1", "uid-s2"} {
			pod, err := d.Pod(key)
			if err != nil || !pod.Restored() {
				t.Errorf("%s: %v, restored %v", key, err, pod.Restored())
			}
		}
		if h := d.Health(); h.Relisted {
			t.Error("it counts as relisted already")
		}
		d.sync(ready("s1"), ready("s2"), ready("s3"))
		pods, _ := d.Pods()
		for _, pod := range pods {
			if pod.Restored() {
				t.Errorf("%s is still marked", pod.Key)
			}
		}
		if h := d.Health(); !h.Relisted || len(pods) != 3 {
			t.Errorf("%d pods, health %+v", len(pods), h)
		}
		d.stop()
	})
}
