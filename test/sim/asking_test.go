package sim_test

import (
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// asking is how the questions to the runtime fare: since when which is failing, and
// which are under way.
type asking struct {
	mu      sync.Mutex
	failing map[string]failing
	under   map[*call]*life
	failed  time.Time // when anything failed last
}

// failing is a question that failed when it was asked last.
type failing struct {
	since time.Time // when the first call was sent of those that failed
	hung  bool      // one of them hung
}

// idOf is the id of a status call, "" of another.
func idOf(m any) string {
	switch m := m.(type) {
	case *runtimeapi.ContainerStatusRequest:
		return m.GetContainerId()
	case *runtimeapi.PodSandboxStatusRequest:
		return m.GetPodSandboxId()
	}
	return ""
}

// question is what a call asks about: an entity, a pod, or "" for another call.
func (c *call) question() string { return c.of + c.filter.sandbox + c.filter.pod }

func (a *asking) sent(l *life, c *call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.under == nil {
		a.under, a.failing = map[*call]*life{}, map[string]failing{}
	}
	if !strings.HasSuffix(c.method, "Events") { // the stream stays
		a.under[c] = l
	}
}

func (a *asking) ended(c *call, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.under, c)
	code := status.Code(err)
	switch q := c.question(); {
	case err == nil || code == codes.NotFound:
		delete(a.failing, q)
	default:
		a.failed = time.Now()
		f, ok := a.failing[q]
		if !ok {
			f.since = c.sent
		}
		f.hung = f.hung || code == codes.DeadlineExceeded || code == codes.Canceled
		if q != "" && !c.sent.IsZero() {
			a.failing[q] = f
		}
	}
}

// waits is how long a question may wait that failed before: as long again as it has
// been failing and a fifth, at least 30 s after a call that hung, at most 6 minutes.
// One that is under way for a second may be about to fail.
func (a *asking) waits(l *life) (longest time.Duration) {
	open := map[string]bool{}
	if l != nil {
		for _, q := range l.g.Status().Asks {
			open[q.ID] = true
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	wait := func(f failing) {
		q := time.Since(f.since) * 6 / 5
		if f.hung {
			q = max(q, hungWait)
		}
		longest = max(longest, min(q, longestWait))
	}
	for _, f := range a.failing {
		if len(open) > 0 {
			wait(f)
		}
	}
	for c, of := range a.under {
		if of == l && time.Since(c.sent) > time.Second {
			f, ok := a.failing[c.question()]
			if !ok {
				f.since = c.sent
			}
			f.hung = true
			wait(f)
		}
	}
	return longest
}
