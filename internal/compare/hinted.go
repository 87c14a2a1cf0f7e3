package compare

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/evented"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/timestamps"
)

// maxHints is how many pods wait to be relisted: the kubelet's own bound
// (relistRequests in pkg/kubelet/pleg/generic.go, 1.36 and later). More are
// dropped there too; the next relist finds what they were about.
const maxHints = 200

// hinter reads the event stream beside a generator in mode generic. A STOPPED
// event makes it ask for a relist of that pod, as EventedPLEG of kubelet 1.37
// does (pkg/kubelet/pleg/evented.go: all other events are ignored, and
// RequestRelist is served one pod at a time). What an event says beyond that is
// not used. Two things are better than there: a stream that ends is opened
// again for ever, and the relist of a pod also shows what has gone from it.
type hinter struct {
	client  *cri.Client
	watcher *evented.Watcher
	pods    chan string
	dropped atomic.Uint64
}

// newHinter prepares one with a connection of its own, which the recorder counts
// with the generator's.
func newHinter(c *Child, in place) (*hinter, error) {
	h := &hinter{pods: make(chan string, maxHints)}
	var err error
	h.client, err = cri.Dial(cri.Config{
		Endpoint: c.Endpoint, RPCTimeout: c.RPCTimeout, Clock: in.clock, Stats: in.rec.Stats(), Dialer: in.dial, Redial: in.redial,
		Connected: func() {
			if h.watcher != nil {
				h.watcher.Reprobe()
			}
		},
	})
	if err != nil {
		return nil, err
	}
	h.watcher, err = evented.New(evented.Config{
		Open:  func(ctx context.Context) (evented.Stream, error) { return h.client.Events(ctx) },
		Admit: h.admit,
		Sink:  h, Calls: arbiter.NewCalls(in.clock, timestamps.NewCounter(0)), Clock: in.clock, Random: in.random,
	})
	return h, err
}

// admit refuses a stream whose subscribers compete, as a generator does.
func (h *hinter) admit(ctx context.Context) error {
	v, err := h.client.Version(ctx)
	if err != nil {
		return err
	}
	if arbiter.HabitsOf(v.Name, v.Version).Stream == arbiter.StreamCompeting {
		return fmt.Errorf("%w: %s %s gives each event to one subscriber only", evented.ErrRefused, v.Name, v.Version)
	}
	return nil
}

// run reads and asks until ctx ends.
func (h *hinter) run(ctx context.Context, g *pleg.Generator) error {
	defer func() { _ = h.client.Close() }()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return h.watcher.Run(ctx) })
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case uid := <-h.pods:
				// That the pod is gone, or the call fails, is found out by the
				// next relist too.
				_, _ = g.PodNewer(ctx, uid)
			}
		}
	})
	return group.Wait()
}

// stream is the state of the event stream.
func (h *hinter) stream() string { return h.watcher.Status().State.String() }

// SubmitEvent implements [arbiter.Sink].
func (h *hinter) SubmitEvent(ev *arbiter.EventSeen) bool {
	if ev.Type != arbiter.EventStopped || ev.Sandbox == nil || ev.Sandbox.Identity.Pod.UID == "" {
		return true
	}
	select {
	case h.pods <- ev.Sandbox.Identity.Pod.UID:
	default:
		h.dropped.Add(1)
	}
	return true
}

// Submit implements [arbiter.Sink]: changes of the stream change nothing, since
// the relists go on at their period all the while.
func (h *hinter) Submit(arbiter.Input) {}
