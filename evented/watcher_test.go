package evented

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/timestamps"
)

var (
	unavailable   = status.Error(codes.Unavailable, "no socket")
	unimplemented = status.Error(codes.Unimplemented, "unknown method GetContainerEvents")
)

// Opening proves nothing; lasting does, and so does a message.
func TestWhenAStreamIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, Config{})
		time.Sleep(DefaultGrace - time.Nanosecond)
		if s := g.Status(); s.State != arbiter.StreamOff || g.sink.String() != "" {
			t.Errorf("up too early: %+v", s)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if s := g.Status(); s.State != arbiter.StreamUp || s.Err != "" || s.Opened != 1 || g.sink.String() != "U" {
			t.Errorf("not up after the grace: %+v", s)
		}
		g.send(event("a"))
		synctest.Wait()
		if s := g.Status(); g.sink.String() != "UE" || s.Events != 1 || s.LastEvent.Tick == 0 {
			t.Errorf("%s, %+v", g.sink, s)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := start(t, Config{})
		synctest.Wait()
		g.send(event("a"), event("b"))
		synctest.Wait()
		if g.sink.String() != "UEE" {
			t.Errorf("a message did not make it up: %s", g.sink)
		}
		in := g.sink.inputs()
		up, first := in[0].(*arbiter.StreamChanged), in[1].(*arbiter.EventSeen)
		if up.At.Tick >= first.At.Tick || first.ID != "a" || first.At.Source != timestamps.FromStream {
			t.Errorf("%+v, %+v", up, first)
		}
		time.Sleep(time.Hour)
		if g.sink.String() != "UEE" || len(g.tries()) != 1 {
			t.Errorf("an idle stream is one stream: %s", g.sink)
		}
	})
}

func TestHowStreamsEnd(t *testing.T) {
	for _, tc := range []struct {
		what   string
		events int
		after  time.Duration // how long it lasts
		err    error
		want   string // submitted
		again  time.Duration
	}{
		{"unimplemented", 0, 0, unimplemented, "X", DefaultProbeInterval},
		{"ended at once by a runtime that stops", 0, 0, io.EOF, "D", DefaultBackoffBase},
		{"ended at once by a busy one", 0, time.Second, io.EOF, "UD", DefaultBackoffBase},
		{"ended at once, but with events", 2, 0, io.EOF, "UEED", DefaultBackoffBase},
		{"ended later", 0, 3 * time.Second, io.EOF, "UD", DefaultBackoffBase},
		{"lost", 0, 0, unavailable, "D", DefaultBackoffBase},
		{"lost later", 1, time.Minute, unavailable, "UED", DefaultBackoffBase},
		{"unimplemented in the middle", 1, time.Second, unimplemented, "UED", DefaultBackoffBase},
		{"internal", 0, 0, status.Error(codes.Internal, "x"), "D", DefaultBackoffBase},
		{"canceled by the runtime", 0, 0, status.Error(codes.Canceled, "x"), "D", DefaultBackoffBase},
		{"an error of no code", 0, 0, errors.New("x"), "D", DefaultBackoffBase},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := start(t, Config{})
			synctest.Wait()
			for range tc.events {
				g.send(event("a"))
			}
			time.Sleep(tc.after)
			g.send(tc.err)
			synctest.Wait()
			if got := g.sink.String(); got != tc.want {
				t.Errorf("%s: submitted %s, want %s", tc.what, got, tc.want)
			}
			s := g.Status()
			if s.State == arbiter.StreamUp || s.Err == "" || s.Err != s.LastErr {
				t.Errorf("%s: %+v", tc.what, s)
			}
			time.Sleep(time.Hour)
			if at := g.tries(); len(at) != 2 || at[1]-tc.after != tc.again {
				t.Errorf("%s: tried at %v, want after %v", tc.what, at, tc.again)
			}
		})
	}
}

// A stream that ends at once, and then does so again, is none (cri-o#7164).
func TestEndedAtOnceTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, Config{}, io.EOF, io.EOF, unavailable, io.EOF, unavailable, io.EOF)
		time.Sleep(time.Second)
		if g.sink.String() != "DX" {
			t.Errorf("submitted %s", g.sink)
		}
		time.Sleep(DefaultProbeInterval + time.Second)
		if g.sink.String() != "DXDDDDU" { // told again where the reason is another
			t.Errorf("submitted %s: only two in a row say so", g.sink)
		}
		if at := g.tries(); len(at) != 7 || at[1]-at[0] != DefaultBackoffBase || at[2]-at[1] != DefaultProbeInterval {
			t.Errorf("tried at %v", at)
		}
	})
}

// The delay grows without progress, and starts over only with it.
func TestReconnectionDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, Config{}, slices.Repeat([]error{unavailable}, 12)...)
		time.Sleep(2 * time.Minute)
		want := []int{0, 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000, 10000, 10000, 10000}
		var at time.Duration
		for i, got := range g.tries() {
			at += time.Duration(want[i]) * time.Millisecond
			if got != at {
				t.Errorf("try %d at %v, want %v", i, got, at)
			}
		}
		if g.sink.String() != "DU" {
			t.Errorf("submitted %s: what stays the same is not told again", g.sink)
		}
		// It was up for a minute: that is progress.
		g.send(unavailable)
		time.Sleep(DefaultBackoffBase)
		synctest.Wait()
		if n := len(g.tries()); n != 14 {
			t.Errorf("%d tries", n)
		}
		// Coming up and going at once is none, even with events.
		for i := range 5 {
			before := len(g.tries())
			g.send(event("a"))
			g.send(unavailable)
			time.Sleep(DefaultBackoffBase<<(i+1) - time.Millisecond)
			if n := len(g.tries()); n != before {
				t.Errorf("round %d: tried too early", i)
			}
			time.Sleep(2 * time.Millisecond)
			if n := len(g.tries()); n != before+1 {
				t.Errorf("round %d: not tried", i)
			}
		}
	})
}

func TestJitterSpreadsReconnections(t *testing.T) {
	for r, want := range map[float64]int{0: 80, 1: 120, 2: 120, -1: 80} {
		synctest.Test(t, func(t *testing.T) {
			g := start(t, Config{Random: func() float64 { return r }}, unavailable)
			time.Sleep(time.Second)
			if at := g.tries(); at[1] != time.Duration(want)*time.Millisecond {
				t.Errorf("%v: %v", r, at)
			}
		})
	}
}

// Few tries while there is no stream, one at once when the runtime came
// back, for it may be another.
func TestUnsupportedIsProbedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, Config{}, unimplemented, unimplemented, unimplemented)
		g.Reprobe() // the first try itself makes a connection
		time.Sleep(4 * time.Minute)
		if n := len(g.tries()); n != 1 {
			t.Errorf("%d tries", n)
		}
		time.Sleep(5 * time.Minute)
		if n := len(g.tries()); n != 2 {
			t.Errorf("%d tries", n)
		}
		g.Reprobe()
		synctest.Wait()
		if n := len(g.tries()); n != 3 {
			t.Errorf("%d tries", n)
		}
		for range 50 {
			g.Reprobe()
			time.Sleep(time.Millisecond)
		}
		if n := len(g.tries()); n != 3 {
			t.Errorf("%d tries: a runtime that comes and goes is tried without pause", n)
		}
		time.Sleep(time.Second)
		g.Reprobe()
		time.Sleep(time.Second)
		if g.sink.String() != "XU" {
			t.Errorf("submitted %s", g.sink)
		}
		time.Sleep(time.Minute)
	})
}

// A runtime that has answered that it has no stream is well: what failed before
// that doesn't count when its stream fails again later.
func TestUnsupportedEndsTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, Config{}, unavailable, unavailable, unavailable, unavailable, unavailable, unimplemented, unavailable, unavailable)
		time.Sleep(2 * DefaultProbeInterval)
		tries := g.tries()
		if len(tries) < 8 {
			t.Fatalf("%d tries", len(tries))
		}
		if pause := tries[7] - tries[6]; pause != DefaultBackoffBase {
			t.Errorf("tried again after %v, want %v", pause, DefaultBackoffBase)
		}
	})
}

func TestReprobeShortensTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, Config{}, slices.Repeat([]error{unavailable}, 10)...)
		time.Sleep(30 * time.Second)
		before := len(g.tries())
		g.Reprobe()
		synctest.Wait()
		if n := len(g.tries()); n != before+1 {
			t.Errorf("%d tries after %d", n, before)
		}
	})
}

func TestRequiredStream(t *testing.T) {
	for _, tt := range []struct {
		what    string
		answers []error
		want    string
	}{
		{"unimplemented", []error{unavailable, unimplemented}, "DX"},
		{"ended at once, twice", []error{unavailable, io.EOF, io.EOF}, "DDX"},
		{"ended at once, and again later", []error{io.EOF, unavailable, io.EOF, io.EOF}, "DDDX"},
	} {
		synctest.Test(t, func(t *testing.T) {
			what := tt.what
			g := start(t, Config{Required: true}, tt.answers...)
			time.Sleep(2 * time.Second)
			if g.sink.String() != tt.want {
				t.Errorf("%s: submitted %s, want %s", what, g.sink, tt.want)
			}
			if err := g.stop(); !errors.Is(err, ErrUnsupported) || errors.Is(err, ErrMalformed) {
				t.Errorf("%s: %v", what, err)
			}
			if err := g.Run(t.Context()); !errors.Is(err, ErrRan) {
				t.Error(err)
			}
		})
	}
}

// Reading would take events from others (containerd#7318).
func TestNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := true
		g := start(t, Config{Admit: func(context.Context) error {
			if refuse {
				return fmt.Errorf("%w: containerd 1.7 gives each event to one subscriber only", ErrRefused)
			}
			return nil
		}})
		time.Sleep(time.Minute)
		if g.sink.String() != "X" || len(g.tries()) != 0 || !strings.Contains(g.Status().Err, "1.7") {
			t.Errorf("%s, %+v", g.sink, g.Status())
		}
		refuse = false
		g.Reprobe()
		time.Sleep(time.Second)
		if g.sink.String() != "XU" {
			t.Errorf("submitted %s", g.sink)
		}
	})
}

// Where it can't be found out whether the stream may be opened, it isn't, and
// that is asked again soon.
func TestAdmissionThatFailsIsAskedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var refused atomic.Bool
		g := start(t, Config{Admit: func(context.Context) error {
			if refused.Load() {
				return fmt.Errorf("%w: x", ErrRefused)
			}
			return fmt.Errorf("version: %w", unavailable)
		}})
		time.Sleep(time.Minute)
		if s := g.Status(); g.sink.String() != "D" || len(g.tries()) != 0 || s.Tries < 8 || !strings.Contains(s.Err, "no socket") {
			t.Errorf("%s, %+v", g.sink, s)
		}
		refused.Store(true)
		time.Sleep(2 * DefaultBackoffMax)
		if g.sink.String() != "DX" || len(g.tries()) != 0 {
			t.Errorf("submitted %s, %d streams", g.sink, len(g.tries()))
		}
	})
}

// Health tells the reason that it heard last: when another kind of trouble
// takes the place of the first, it hears of that, but not of each try.
func TestAnotherReasonIsSubmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied := status.Error(codes.PermissionDenied, "not for you")
		again := status.Error(codes.Unavailable, "no socket, in other words")
		g := start(t, Config{}, unavailable, again, unavailable, denied, denied, again)
		time.Sleep(5 * time.Second) // all of them, and not yet a stream
		var reasons []string
		for _, in := range g.sink.inputs() {
			if in, ok := in.(*arbiter.StreamChanged); ok && in.State == arbiter.StreamDown {
				reasons = append(reasons, in.Err)
			}
		}
		if len(reasons) != 3 || !strings.Contains(reasons[0], "no socket") || !strings.Contains(reasons[1], "not for you") || !strings.Contains(reasons[2], "other words") {
			t.Errorf("%q", reasons)
		}
		first := g.sink.inputs()[0].(*arbiter.StreamChanged)
		if s := g.Status(); s.Since != first.At {
			t.Errorf("down since %+v, want since %+v", s.Since, first.At)
		}
	})
}

// Events for which there is no room are counted and told, the first at once and
// the rest together.
func TestOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, Config{})
		time.Sleep(time.Second)
		g.sink.setRoom(3)
		for range 10 {
			g.send(event("a"))
		}
		synctest.Wait()
		n, times := g.sink.lost()
		if n == 0 || times != 1 {
			t.Errorf("lost %d, told %d times: the first is told at once", n, times)
		}
		time.Sleep(overflowGap)
		synctest.Wait()
		if n, times = g.sink.lost(); n != 7 || times > 2 {
			t.Errorf("lost %d, told %d times", n, times)
		}
		for range 2500 { // two seconds and a half
			g.send(event("a"))
			time.Sleep(time.Millisecond)
		}
		g.send(unavailable) // what is held back then is told too
		synctest.Wait()
		if n, times = g.sink.lost(); n != 2507 || times > 6 {
			t.Errorf("lost %d, told %d times", n, times)
		}
		if s := g.Status(); s.Lost != 2507 || s.Events != 2510 {
			t.Errorf("%+v", s)
		}
		if in := g.sink.inputs(); !strings.HasSuffix(g.sink.String(), "OD") {
			t.Errorf("%s: %+v", g.sink, in[len(in)-1])
		}
	})
}

// A message that can't be decoded is one event lost, not the stream.
func TestMalformedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := start(t, Config{})
		synctest.Wait()
		g.send(fmt.Errorf("event: %w", ErrMalformed), event("a"), event(""))
		time.Sleep(time.Second)
		s := g.Status()
		if s.Malformed != 1 || s.Lost != 0 || s.Events != 3 || s.Tries != 1 || s.State != arbiter.StreamUp {
			t.Errorf("%+v", s)
		}
		if n, times := g.sink.lost(); n != 1 || times != 1 || !strings.HasPrefix(g.sink.String(), "U") {
			t.Errorf("%d, %d: %s", n, times, g.sink)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	clock := sysclock.New()
	good := Config{
		Open: func(context.Context) (Stream, error) { return nil, io.EOF }, Sink: &sink{}, Clock: clock,
		Calls: arbiter.NewCalls(clock, new(timestamps.Counter)),
	}
	for what, change := range map[string]func(*Config){
		"no open":        func(c *Config) { c.Open = nil },
		"no clock":       func(c *Config) { c.Clock = timestamps.Clock{} },
		"negative grace": func(c *Config) { c.Grace = -1 },
		"max below base": func(c *Config) { c.BackoffBase, c.BackoffMax = time.Minute, time.Second },
	} {
		cfg := good
		change(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
	good.BackoffBase = time.Hour
	if w, err := New(good); err != nil || w.cfg.BackoffMax != time.Hour || w.cfg.Grace != DefaultGrace {
		t.Errorf("%v", err)
	}
}
