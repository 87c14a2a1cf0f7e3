package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/plegd/plegd/client"
)

const (
	// screenBegin takes the other screen, without a cursor and with long lines
	// cut off; screenEnd gives everything back.
	screenBegin = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	screenEnd   = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	// screenHome begins a drawing, lineEnd ends a line of it and clears its rest,
	// screenRest clears what is below.
	screenHome, lineEnd, screenRest = "\x1b[H", "\x1b[K\r\n", "\x1b[K\x1b[J"
	// keyPoll is how often it is looked whether keys are still to be read.
	keyPoll = 100 * time.Millisecond
	ctrlC   = 3 // what the key sends while the terminal is raw
)

// screen is a terminal that is drawn on.
type screen struct {
	out     *os.File
	in      *os.File    // nil if it isn't a terminal: there are no keys then
	before  *term.State // of in
	restore func()      // gives the terminal back; may be called again
}

// openScreen takes a terminal.
func openScreen(out, in *os.File) (*screen, error) {
	s := &screen{out: out}
	if term.IsTerminal(fd(in)) {
		before, err := term.MakeRaw(fd(in))
		if err != nil {
			return nil, fmt.Errorf("terminal: %w", err)
		}
		s.in, s.before = in, before
	}
	s.restore = sync.OnceFunc(func() {
		_, _ = out.WriteString(screenEnd) // it may be gone
		if s.in != nil {
			_ = term.Restore(fd(s.in), s.before)
		}
	})
	_, err := out.WriteString(screenBegin)
	if err != nil {
		s.restore()
	}
	return s, err
}

func fd(f *os.File) int { return int(f.Fd()) } //nolint:gosec // a descriptor fits

// size returns width and height, as a terminal of old has them where it doesn't
// say.
func (s *screen) size() (width, height int) {
	width, height, err := term.GetSize(fd(s.out))
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}

// draw draws lines, as many as there is room for, in one write, so that nothing
// flickers.
func (s *screen) draw(lines []string) error {
	_, err := s.out.WriteString(screenHome + strings.Join(lines, lineEnd) + screenRest)
	return err
}

// keys calls quit at q or Ctrl-C until ctx ends.
func (s *screen) keys(ctx context.Context, quit func()) {
	if s.in == nil {
		return
	}
	buf := make([]byte, 64)
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(fd(s.in)), Events: unix.POLLIN}} //nolint:gosec // a descriptor fits
		n, err := unix.Poll(fds, int(keyPoll.Milliseconds()))
		if err != nil || n == 0 { // interrupted by a signal, or no key
			continue
		}
		n, err = s.in.Read(buf)
		if err != nil {
			quit() // the terminal is gone
			return
		}
		if strings.ContainsAny(string(buf[:n]), "qQ"+string(rune(ctrlC))) {
			quit()
		}
	}
}

// topLink is whether there is an agent. It is safe for concurrent use.
type topLink struct {
	mu    sync.Mutex
	since time.Time // it is lost since; zero if it isn't
	why   string
}

func (l *topLink) lost(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since, l.why = time.Now(), why.Error()
}

func (l *topLink) back() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = time.Time{}
}

// trouble says that the agent is lost, "" if it isn't.
func (l *topLink) trouble(now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.since.IsZero() {
		return ""
	}
	return fmt.Sprintf("lost the agent %s ago, what follows is old: %s", age(now, l.since), l.why)
}

// topLook is what one look at the agent brought.
type topLook struct {
	view *topView
	err  error
}

// live draws views until it is asked to stop. Whatever happens the terminal is
// given back: a panic of what runs beside is raised again here.
func (o *topOptions) live(parent context.Context, agent *agentClient, view *topView, link *topLink) error {
	ctx, quit := context.WithCancel(parent)
	s, err := openScreen(o.std.out.(*os.File), os.Stdin)
	if err != nil {
		quit()
		return err
	}
	var running sync.WaitGroup
	panics, failed := make(chan any, 3), make(chan error, 1) // with room for one of each
	beside := func(do func()) {
		running.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics <- p
				}
			}()
			do()
		})
	}
	defer running.Wait()
	defer quit()
	defer s.restore()
	events, looks := make(chan *client.Event), make(chan topLook)
	beside(func() { s.keys(ctx, quit) })
	beside(func() { failed <- o.follow(ctx, agent, events) })
	beside(func() {
		every(ctx, o.interval, func() {
			v, err := o.look(ctx, agent)
			send(ctx, looks, topLook{v, err})
		})
	})
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)
	all, trouble := &topEvents{pending: true}, ""
	for draw := true; ; {
		if draw {
			view.now, view.events, view.trouble = time.Now(), all, cmp.Or(link.trouble(time.Now()), trouble)
			width, height := s.size()
			if err := s.draw(view.lines(width, height, colored(o.color, o.std))); err != nil {
				return err
			}
		}
		draw = true
		select {
		case <-ctx.Done():
			return nil
		case p := <-panics:
			s.restore()
			panic(p)
		case err := <-failed:
			return stopped(ctx, err)
		case ev := <-events:
			all.add(ev)
			draw = ev == nil
			all.pending = all.pending && !draw
		case l := <-looks:
			trouble = ""
			if l.err != nil { // the old view stays
				trouble = "what follows is old: " + l.err.Error()
			} else {
				view = l.view
			}
		case <-resized:
		}
	}
}

// follow hands on events, those of the last topWindow first, and nil behind these.
func (o *topOptions) follow(ctx context.Context, agent *agentClient, events chan<- *client.Event) error {
	from := client.From{Time: time.Now().Add(-topWindow)}
	hand := func(u *client.Update) error {
		if u.Event != nil {
			send(ctx, events, u.Event)
		}
		from = client.From{Position: u.Position}
		return nil
	}
	if err := agent.each(ctx, client.WatchOptions{From: from, Filter: o.request(), Once: true, StartOver: true}, nothingIdle, hand); err != nil {
		return err
	}
	send(ctx, events, nil)
	return agent.each(ctx, client.WatchOptions{From: from, Filter: o.request(), StartOver: true}, nothingIdle, hand)
}
