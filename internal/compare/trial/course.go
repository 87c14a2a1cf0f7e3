package trial

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/compare"
)

// awaitReady waits for the modes to be ready, or to have ended.
func (t *trial) awaitReady(ctx context.Context) error {
	timeout := time.After(readyTimeout)
	ready := 0
	for _, k := range t.kids {
		select {
		case <-k.ready:
		case <-k.ended:
		case <-timeout:
			timeout = time.After(0) // for the rest too
		case <-ctx.Done():
			return fmt.Errorf("interrupted before all modes were ready: %w", ctx.Err())
		}
		if k.isReady() {
			ready++
		}
	}
	if ready == 0 {
		var why []string
		for _, k := range t.kids {
			why = append(why, k.order.Mode.Name+": "+k.why())
		}
		return fmt.Errorf("%w: %s", ErrNoMode, strings.Join(why, "; "))
	}
	return nil
}

// measure waits for the end of the measurement and returns when it was.
func (t *trial) measure(ctx context.Context, rt *runtime) int64 {
	length, words := t.cfg.For, "for "+t.cfg.For.String()
	if length == 0 {
		length, words = MaxFor, "until there were "+strconv.Itoa(t.cfg.Transitions)+" transitions"
	}
	t.cfg.Tell("measuring " + words)
	timer := time.NewTimer(length)
	defer timer.Stop()
	ended := make(chan struct{})
	go func() { // ends with the children, which t.kill ends at the latest
		defer close(ended)
		for _, k := range t.kids {
			<-k.ended
		}
	}()
	began := time.Now()
	ran := func() string { return time.Since(began).Round(100 * time.Millisecond).String() }
	select {
	case <-timer.C:
		if t.cfg.For == 0 {
			t.note("ended after %v with fewer transitions than were asked for", MaxFor)
		}
	case <-t.enough:
	case <-ctx.Done():
		t.cut = "the comparison was interrupted"
		t.note("interrupted after %s; what follows is about that time", ran())
	case <-rt.gone:
		t.cut = "the runtime went away"
		t.note("the runtime went away after %s and did not come back; what follows is about the time before that", time.Unix(0, rt.goneAt).Sub(began).Round(100*time.Millisecond))
		return rt.goneAt
	case <-ended:
		t.note("all modes ended after %s; what follows is about that time", ran())
	}
	return time.Now().UnixNano()
}

// settle waits until what happened last had its chance to be told. It reports
// whether the runtime is still there to be listed.
func (t *trial) settle(ctx context.Context, rt *runtime) bool {
	timer := time.NewTimer(t.tail())
	defer timer.Stop()
	if ctx.Err() == nil {
		t.cfg.Tell("waiting for what happened last to be told")
	}
	select {
	case <-timer.C:
		return true
	case <-rt.gone:
		return false
	}
}

// tail is how long what happened last may take to be told.
func (t *trial) tail() time.Duration {
	wait := t.cfg.Late
	for _, m := range t.cfg.Modes {
		if m.Kind == compare.Generic || m.Kind == compare.Hinted {
			wait = max(wait, m.Period)
		}
	}
	return min(wait+settleSlack, maxSettle)
}

// end ends the modes, with a relist if the runtime is there.
func (t *trial) end(relist bool) {
	for _, k := range t.kids {
		k.close(relist)
	}
	timeout := time.After(endTimeout)
	for _, k := range t.kids {
		select {
		case <-k.ended:
		case <-timeout:
			timeout = time.After(0)
			k.kill()
			<-k.ended
		}
	}
}
