package compare

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/backoff"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/seam"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/timestamps"
)

const (
	// samplePeriod is how often costs are read.
	samplePeriod = time.Second
	// readyPoll is how often a mode looks whether it is ready, at its start.
	readyPoll = 20 * time.Millisecond
	// streamPatience is how long a mode waits at its start for a stream that
	// doesn't come up, before it is ready without.
	streamPatience = 5 * time.Second
	// listPatience is how long a mode on a runtime may take to list everything once.
	listPatience = 30 * time.Second
	// backlogTime is what a stream that has just opened is given to hand over what it
	// kept: containerd keeps five minutes of events for its next subscriber.
	backlogTime = 300 * time.Millisecond
	// startPatience is how long a mode waits for the inspections of its start while
	// none of them gets done.
	startPatience = 5 * time.Second
	// StartTime bounds all of them: those of thousands of pods take half a minute where
	// four modes share two processors.
	StartTime = 2 * time.Minute
	// closingTime bounds the relist at the end and what comes of it.
	closingTime = 5 * time.Second
	// settled: no event for so long after the closing relist is the end of them.
	settled = 300 * time.Millisecond
)

// Child says what a child does: the first line of its stdin.
type Child struct {
	Mode       Mode          `json:"mode"`
	Endpoint   string        `json:"endpoint"`
	StateDir   string        `json:"state_dir"`
	RPCTimeout time.Duration `json:"rpc_timeout"`
	Input      string        `json:"input,omitempty"`    // a recording, in place of Endpoint and StateDir; see Replay
	CloseAt    time.Duration `json:"close_at,omitempty"` // of a replay: when the closing relist is, since its begin
}

// The words that a child reads after that. The end of its stdin, as when its
// parent was killed, ends it at once.
const (
	// WordClose asks for one more relist of a mode that relists at all, and then the end.
	WordClose = "close"
)

// Run runs one mode as a child process does: it reads what to do from in and
// writes lines to out, until in ends or says [WordClose], or ctx ends. What went
// wrong is in the last line, and returned if not even that could be written.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	words := bufio.NewScanner(in)
	c, err := readChild(words)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	closing := make(chan struct{})
	go func() { // ends with the process, or with in
		for words.Scan() {
			if words.Text() == WordClose {
				close(closing)
				break
			}
		}
		for words.Scan() {
			continue
		}
		cancel()
	}()
	q := newQueue(out)
	clock := sysclock.New()
	rec := NewRecorder(q.put, clock)
	rec.End(c.run(ctx, closing, place{rec: rec, clock: clock, usage: Usage}))
	return q.close()
}

// readChild reads what a child is to do.
func readChild(words *bufio.Scanner) (c Child, err error) {
	if !words.Scan() {
		return c, fmt.Errorf("child of a comparison: nothing on stdin: %w", errors.Join(words.Err(), io.ErrUnexpectedEOF))
	}
	if err := json.Unmarshal(words.Bytes(), &c); err != nil {
		return c, fmt.Errorf("child of a comparison: %w", err)
	}
	return c, nil
}

// run runs the mode. nil is an end that was asked for.
func (c Child) run(ctx context.Context, closing <-chan struct{}, in place) error {
	cfg := pleg.Config{
		Endpoint: c.Endpoint, StateDir: c.StateDir, Mode: pleg.Mode(c.Mode.Kind), RelistPeriod: c.Mode.Period,
		RPCTimeout: c.RPCTimeout, Clock: in.clock,
	}
	var hint *hinter
	if c.Mode.Kind == Hinted {
		cfg.Mode = pleg.ModeGeneric
		var err error
		if hint, err = newHinter(&c, in); err != nil {
			return err
		}
	}
	var h seam.Hooks
	in.rec.Hooks(&h)
	if in.configure == nil {
		seam.Set(&cfg, h)
	} else {
		in.configure(&cfg, h)
	}
	cfg.Logger = slog.New(&noter{rec: in.rec})
	g, err := pleg.New(cfg)
	if err != nil {
		return err
	}
	m := &mode{Child: c, place: in, g: g, hint: hint, told: make(chan struct{}, 1)}
	return m.run(ctx, closing)
}

// place is where a mode runs: on the machine, or in the world of a recording.
type place struct {
	rec       *Recorder
	clock     timestamps.Clock
	usage     func(*Sample)                                            // nil where it says nothing
	dial      func(ctx context.Context, path string) (net.Conn, error) // nil for the socket
	configure func(cfg *pleg.Config, more seam.Hooks)                  // nil for the hooks alone
	redial    *backoff.Config                                          // nil for that of the client
	random    func() float64                                           // of the hinter; nil for chance
}

// mode is a mode that runs.
type mode struct {
	Child
	place

	g    *pleg.Generator
	hint *hinter
	told chan struct{} // capacity 1: an event came
}

// errAsked ends a mode that was asked to end.
var errAsked = errors.New("asked to end")

func (m *mode) run(ctx context.Context, closing <-chan struct{}) error {
	sub, err := m.g.SubscribeLive(nil)
	if err != nil {
		return errors.Join(err, m.g.Close())
	}
	m.rec.Sample(m.usage) // before it has any costs, so that it doesn't depend on which goroutine is first
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := m.g.Run(ctx); err != nil {
			return err
		}
		return errAsked
	})
	group.Go(func() error { return m.read(ctx, sub) })
	group.Go(func() error { return m.sample(ctx) })
	group.Go(func() error {
		if err := m.awaitReady(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return errAsked
		case <-closing:
			m.close(ctx)
			return errAsked // ends the rest
		}
	})
	if m.hint != nil {
		group.Go(func() error { return m.hint.run(ctx, m.g) })
	}
	err = group.Wait()
	m.rec.Sample(m.usage)
	if m.hint != nil {
		if n := m.hint.dropped.Load(); n > 0 {
			m.rec.Note(fmt.Sprintf("%d stopped events asked for no relist, since %d pods waited for one", n, maxHints))
		}
	}
	if errors.Is(err, errAsked) {
		return nil
	}
	return err
}

// read makes lines of the events.
func (m *mode) read(ctx context.Context, sub *pleg.LiveSubscription) error {
	for {
		ev, _, err := sub.Next(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, pleg.ErrStopped):
			return nil //nolint:nilerr // it was to end
		case err != nil:
			return err
		}
		m.rec.Event(ev)
		select {
		case m.told <- struct{}{}:
		default:
		}
	}
}

// sample reads the costs each second.
func (m *mode) sample(ctx context.Context) error {
	ticker := time.NewTicker(samplePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			m.rec.Sample(m.usage)
		}
	}
}

// awaitReady says when the mode is: what is measured must not be its start. The
// error is that it never lists.
func (m *mode) awaitReady(ctx context.Context) error {
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	began := time.Now()
	var start *starting
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		s := m.g.Status()
		stream := s.Stream.State
		if m.hint != nil {
			stream = m.hint.stream()
		}
		waits := stream == arbiter.StreamDown.String() && time.Since(began) < streamPatience
		if m.Mode.Kind != Generic && stream == arbiter.StreamOff.String() {
			waits = true // not tried yet
		}
		switch {
		case !s.Health.Listed:
			// A recording may begin while the runtime is down, and takes as long as it takes.
			if m.Input == "" && time.Since(began) > listPatience {
				return fmt.Errorf("it got no full list within %v: %s", listPatience, s.Relist.Error)
			}
		case waits:
		case start == nil:
			start = newStarting(s.Asks)
		case start.goesOn(&s):
		default:
			if n := len(start.left); n > 0 {
				m.rec.Note(fmt.Sprintf("of what was there at the start %d could not be inspected in time; what is known of that may be late or wrong", n))
			}
			m.rec.Ready(s.Runtime.Name, s.Runtime.Version, stream)
			return nil
		}
	}
}

// starting is what a mode that has listed is still about to find out.
type starting struct {
	began, moved time.Time       // moved: when something of it was done last
	left         map[string]bool // to be inspected
}

func newStarting(asks []pleg.AskStatus) *starting {
	now := time.Now()
	s := &starting{began: now, moved: now, left: map[string]bool{}}
	for _, a := range asks {
		s.left[a.ID] = true
	}
	return s
}

// goesOn reports whether the start is still to be waited for. What is asked for
// later doesn't count, since on a busy node there is always something, nor does what
// failed: it waits for its back-off.
func (s *starting) goesOn(now *pleg.Status) bool {
	wanted := map[string]bool{}
	for _, a := range now.Asks {
		if s.left[a.ID] && a.Fails == 0 {
			wanted[a.ID] = true
		}
	}
	if len(wanted) < len(s.left) {
		s.left, s.moved = wanted, time.Now()
	}
	if time.Since(s.began) < backlogTime {
		return true
	}
	return (len(s.left) > 0 || now.Queued > 0) && time.Since(s.moved) < startPatience && time.Since(s.began) < StartTime
}

// close lists once more, unless the mode never does by itself, and waits for
// the events of it: what is told now is what the next relist would have found.
func (m *mode) close(ctx context.Context) {
	if m.Mode.Kind == Evented {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closingTime)
	defer cancel()
	if err := m.g.Relist(ctx); err != nil {
		m.rec.Note(fmt.Sprintf("the closing relist failed: %v", err))
		return
	}
	for {
		timer := time.NewTimer(settled)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			return
		case <-m.told:
			timer.Stop()
		}
	}
}
