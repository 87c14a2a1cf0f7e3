package arbiter

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// asked returns the actions of a kind that were sent after the first n, and how
// many there are of all kinds.
func (w *watching) asked(n int, kind ActionKind) (found []Action, all int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.actions[n:] {
		if a.Kind == kind {
			found = append(found, a)
		}
	}
	return found, len(w.actions)
}

// TestLoopPodNewerServesEachReader: a look answers those who asked before it
// was sent. Who asks while it is in flight has one of his own, without a third
// question.
func TestLoopPodNewerServesEachReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync(ready("s1"))
		first := d.newer(t.Context(), "uid-s1")
		if !waits(first) {
			t.Fatal("answered from what was known")
		}
		look := d.look("uid-s1", ready("s1"))
		second := d.newer(t.Context(), "uid-s1")
		if !waits(second) {
			t.Fatal("answered from what was known")
		}
		_, n := d.seen.asked(0, ActPod)
		d.Submit(look)
		if waits(first) || !waits(second) {
			t.Fatalf("first reader answered: %v, second: %v; the look was sent between their questions", !waits(first), !waits(second))
		}
		again, _ := d.seen.asked(n, ActPod)
		if len(again) != 1 || again[0].ID != "uid-s1" {
			t.Fatalf("asked anew for the second reader: %+v", again)
		}
		d.Submit(d.look("uid-s1", ready("s1")))
		if waits(second) {
			t.Fatal("the second reader goes on waiting")
		}
		for _, c := range []<-chan podResult{first, second} {
			if r := <-c; r.err != nil || len(r.pod.Sandboxes) != 1 {
				t.Errorf("%+v", r)
			}
		}
		d.stop()
	})
}

// TestLoopPodNewerAsksAgainAfterAFailure: a look that failed answers nobody and
// is asked for again.
func TestLoopPodNewerAsksAgainAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, memory())
		d.sync(ready("s1"))
		c := d.newer(t.Context(), "uid-s1")
		for fails := 1; fails < 4; fails++ {
			synctest.Wait()
			_, n := d.seen.asked(0, ActPod)
			d.Submit(&ListFailed{Scope: Scope{PodUID: "uid-s1"}, At: d.moment(), Err: "no socket"})
			if !waits(c) {
				t.Fatal("answered by a failure")
			}
			if again, _ := d.seen.asked(n, ActPod); len(again) != 1 || again[0].Attempt != fails {
				t.Fatalf("after failure %d: asked %+v", fails, again)
			}
		}
		d.Submit(d.look("uid-s1", ready("s1")))
		if r := <-c; r.err != nil {
			t.Error(r.err)
		}
		d.stop()
	})
}

// TestLoopPodNewerWaitsForWhatIsGone: a look by the pod's label that lacks it
// proves nothing, so its reader waits until that is settled: by the removal, or
// by finding it after all.
func TestLoopPodNewerWaitsForWhatIsGone(t *testing.T) {
	for _, gone := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d := drive(t, memory())
			d.sync(ready("s1"))
			c := d.newer(t.Context(), "uid-s1")
			synctest.Wait()
			_, n := d.seen.asked(0, ActPod)
			d.Submit(d.look("uid-s1")) // without it
			if !waits(c) {
				t.Fatalf("answered %+v before it was settled", <-c)
			}
			answered := 0
			for range 5 { // the witnesses that O4 asks for, and not without end
				looks, _ := d.seen.asked(n, ActLook)
				statuses, all := d.seen.asked(n, ActStatus)
				n = all
				for _, a := range looks {
					l := &ListSeen{Scope: Scope{Sandbox: a.ID}, SandboxCall: d.call(), ContainerCall: d.call()}
					if !gone {
						l.Sandboxes = []Item{ready("s1")}
					}
					d.Submit(l)
					answered++
				}
				for _, a := range statuses {
					s := &StatusSeen{Kind: a.Entity, ID: a.ID, Call: d.call(), NotFound: gone}
					if it := ready("s1"); !gone {
						s.Item = &it
					}
					d.Submit(s)
					answered++
				}
				time.Sleep(time.Second)
				synctest.Wait()
			}
			if answered == 0 {
				t.Fatal("nothing was asked to settle it")
			}
			if waits(c) {
				t.Fatal("the reader goes on waiting")
			}
			switch r := <-c; {
			case gone && !errors.Is(r.err, ErrNoPod):
				t.Errorf("it is gone: %+v", r)
			case !gone && (r.err != nil || len(r.pod.Sandboxes) != 1):
				t.Errorf("it is there: %+v", r)
			}
			d.stop()
		})
	}
}
