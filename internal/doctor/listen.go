package doctor

import (
	"context"
	"errors"
	"io"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/retry"
)

const (
	// maxHeard bounds the events that are kept of one subscriber: about 100 bytes
	// each. A node that tells more in a minute is judged by those.
	maxHeard = 100_000
	// againFirst and againMost space the tries to open a stream that has ended.
	againFirst, againMost = 200 * time.Millisecond, 2 * time.Second
)

// listener is one subscriber. It reads all the time, whatever becomes of what it
// reads: see cri.EventStream.
type listener struct {
	client *cri.Client
	cancel context.CancelFunc
	done   chan struct{}

	heard   Stream // of run until done is closed, as is clipped
	clipped bool
}

// listen begins to listen, on a connection of its own, until stop is called.
func listen(ctx context.Context, client *cri.Client) *listener {
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{client: client, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.run(ctx)
	}()
	return l
}

// stop ends it and returns what was heard.
func (l *listener) stop() (s Stream, clipped bool) {
	l.cancel()
	<-l.done
	return l.heard, l.clipped
}

func (l *listener) run(ctx context.Context) {
	delays := retry.Delays(againFirst, againMost)
	for ctx.Err() == nil {
		began := time.Now()
		n, err := l.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if n == 0 && cri.Unreachable(err) && len(l.heard.Ends) > 0 { // it has not begun again yet
			_ = retry.Sleep(ctx, delays.NextBackOff())
			continue
		}
		l.heard.Ends = append(l.heard.Ends, End{At: time.Now(), After: time.Since(began), Events: n, Err: err})
		enough := len(l.heard.Ends) >= maxHeard
		if cri.Unimplemented(err) || enough {
			return
		}
		if n > 0 {
			delays.Reset()
		}
		_ = retry.Sleep(ctx, delays.NextBackOff())
	}
}

// read reads one stream to its end.
func (l *listener) read(ctx context.Context) (n int, err error) {
	s, err := l.client.Events(ctx)
	if err != nil {
		return 0, err
	}
	for {
		ev, err := s.Recv()
		h := Heard{At: time.Now()}
		switch {
		case errors.Is(err, cri.ErrMalformed):
			h.Malformed = true
		case err != nil:
			return n, err
		default:
			describe(&h, ev)
		}
		n++
		if last := len(l.heard.Ends) - 1; last >= 0 && l.heard.Ends[last].Until.IsZero() {
			l.heard.Ends[last].Until = h.At
		}
		if len(l.heard.Events) < maxHeard {
			l.heard.Events = append(l.heard.Events, h)
		} else {
			l.clipped = true
		}
	}
}

// describe notes what the doctor wants to know of an event.
func describe(h *Heard, ev *runtimeapi.ContainerEventResponse) {
	h.ID, h.Type, h.CreatedAt = ev.GetContainerId(), ev.GetContainerEventType(), ev.GetCreatedAt()
	sandbox := ev.GetPodSandboxStatus()
	h.NoSandbox = sandbox.GetMetadata() == nil
	if h.Sandbox = sandbox.GetId() == h.ID; h.Sandbox {
		h.Own, h.Exited = true, sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		return
	}
	for _, c := range ev.GetContainersStatuses() {
		if c.GetId() == h.ID {
			h.Own, h.Exited = true, c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
		}
	}
}
